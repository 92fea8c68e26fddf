"""What one run may send, and how many may begin: refused before a body is read, counted, and mended by waiting."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.client import Monitor

from tests.fixtures.application import JSON, SAFETENSORS, Application, good_frame, json_bytes, rows
from tests.fixtures.live import answer_of, serving

URL = "/v1/runs/r1/batches"


def refused(metrics: str, reason: str) -> float:
    found = re.search(rf'offpolicy_rejected_requests_total{{reason="{reason}"}} (\S+)', metrics)
    return float(found[1]) if found else 0.0


@pytest.mark.parametrize("query", ["", "?detail=none", "?detail=%66ull"], ids=["direct", "brief", "framework"])
def test_a_run_over_its_rate_is_refused_and_told_when_to_come_back(
    application: Application, tmp_path: Path, query: str
) -> None:
    with application(run_requests_per_second=0.1, run_burst=20) as client:
        answers = [client.post(URL + query, content=json_bytes(step=step), headers=JSON) for step in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
        problem = answers[2].json()
        assert problem["type"] == "urn:offpolicy-monitor:problem:run-batches-rate"
        assert "run r1" in problem["detail"] and "OFFPOLICY_RUN_REQUESTS_PER_SECOND" in problem["detail"]
        assert 1 <= int(answers[2].headers["Retry-After"]) <= 10
        assert client.post("/v1/runs/r2/batches" + query, content=good_frame(), headers=SAFETENSORS).status_code == 200
        assert client.post("/v1/evaluate", content=json_bytes(), headers=JSON).status_code == 200
        assert refused(client.get("/metrics").text, "run-batches-rate") == 2
    assert rows(tmp_path)["shards"] == 3


def test_a_body_that_a_run_may_not_send_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    limits = {"OFFPOLICY_RUN_BYTES_PER_SECOND": "10", "OFFPOLICY_RUN_BURST": "1"}
    head = b"POST /v1/runs/r1/batches HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with serving(tmp_path, **limits) as service:
        assert service.post(json_bytes())[0] == 200
        with service.connect() as connection:
            connection.sendall(head + b"Content-Length: 10000000\r\n\r\n")
            status, headers, body = answer_of(connection)
        assert (status, headers["connection"]) == (429, "close")
        assert b"run-bytes-rate" in body and int(headers["retry-after"]) > 1


def test_a_monitor_that_is_over_its_rate_waits_and_everything_is_stored(tmp_path: Path) -> None:
    limits = {"OFFPOLICY_RUN_REQUESTS_PER_SECOND": "2", "OFFPOLICY_RUN_BURST": "1"}
    with serving(tmp_path, **limits) as service, Monitor(service.url, "r1") as monitor:
        lp = np.full(4, -1.0, np.float32)
        for step in range(4):
            monitor.log(step=step, lengths=[4], sampling_logprobs=lp, logprobs=lp)
        assert monitor.flush(30)
        stats = dict(monitor.stats)
    assert (stats["sent"], stats["dropped"], stats["errors"], stats["duplicates"]) == (4, 0, 0, 0)
    assert stats["retries"] >= 1


def test_a_run_too_many_in_an_hour_is_refused_unmeasured_and_others_go_on(
    application: Application, tmp_path: Path
) -> None:
    with application(new_runs_per_hour=2) as client:
        posts: list[tuple[str, dict[str, Any]]] = [
            ("a", {}),
            ("b", {}),
            ("c", {}),
            ("a", {"step": 8}),
            ("d", {"rollout": "x", "logprobs": None}),
        ]
        answers = [client.post(f"/v1/runs/{run}/batches", content=json_bytes(**of), headers=JSON) for run, of in posts]
        assert [answer.status_code for answer in answers] == [200, 200, 429, 200, 429]
        problem = answers[2].json()
        assert problem["type"].endswith(":too-many-new-runs")
        for named in ("run c ", " 2 ", "OFFPOLICY_NEW_RUNS_PER_HOUR"):
            assert named in problem["detail"]
        assert 3500 < int(answers[2].headers["Retry-After"]) <= 3600
        assert refused(client.get("/metrics").text, "too-many-new-runs") == 2
    assert (rows(tmp_path)["runs"], rows(tmp_path)["shards"]) == (2, 3)
