"""A summary that cannot be read, of a newer release or damaged, is passed over: all else is shown, and stored."""

import http.client
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.fixtures.application import SAFETENSORS, good_frame
from tests.fixtures.service import Served, service

STEPS, UNREADABLE = 8, (5, 8)
#: One that is kept beside the summary, and one that is read off it.
HEADLINE, DERIVED = "gaps.total.k3", "gaps.total.ratio_min"
K3 = 'offpolicy_kl_nats{{estimator="k3",gap="total",run="{}"}}'


def asked(served: Served, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    with closing(connection):
        connection.request("GET" if body is None else "POST", path, body, {} if body is None else SAFETENSORS)
        response = connection.getresponse()
        return response.status, response.read()


def answer(served: Served, path: str) -> Any:
    status, body = asked(served, path)
    assert status == 200, (path, body)
    return json.loads(body)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service that is started over a database in which some summaries are of no known version.

    Of run `a` those of two steps, of `c` that of the first of a step's two gradient steps, of `d` that of the only
    shard that has come of two.
    """
    folder = tmp_path_factory.mktemp("unreadable")
    with service(folder, name="before") as running:
        for step in range(1, STEPS + 1):
            for run in ("a", "b"):
                assert asked(running, f"/v1/runs/{run}/batches", good_frame(step=step))[0] == 200
        for run, more in (("c", {"minibatch": 0, "minibatches": 2}), ("d", {"shard": 0, "shards": 2})):
            assert asked(running, f"/v1/runs/{run}/batches", good_frame(step=1, **more))[0] == 200
    with closing(sqlite3.connect(folder / "service.db")) as database, database:
        changed = "UPDATE {} SET summary = ? WHERE step = ? AND run_id = (SELECT id FROM runs WHERE name = ?)"
        for table, run, step in (*(("steps", "a", step) for step in UNREADABLE), ("steps", "c", 1), ("shards", "d", 1)):
            found = database.execute(changed.format(table), (b"\xfa" + run.encode() + bytes([step]), step, run))
            assert found.rowcount == 1
    with service(folder) as running:  # which is ready all the same
        yield running


def test_what_is_told_of_a_run_goes_without_the_steps_that_cannot_be_read(served: Served) -> None:
    listed = answer(served, "/v1/runs")["runs"]
    assert sorted(run["run"] for run in listed) == ["a", "b", "c", "d"]
    for path in ("", "/diagnosis", "/recommendations", "/whatif?method=truncate", "/worst?from=1&to=8"):
        assert answer(served, f"/v1/runs/a{path}")
    steps = {row["step"]: row for row in answer(served, "/v1/runs/a/steps")["steps"]}
    assert {step for step, row in steps.items() if "gaps" not in row} == set(UNREADABLE)
    assert answer(served, "/v1/runs/a/steps/8")["step"] == 8


def test_what_was_kept_beside_a_summary_is_plotted_and_what_is_read_off_it_is_null(served: Served) -> None:
    kept, derived = (answer(served, f"/v1/runs/a/series?field={name}") for name in (HEADLINE, DERIVED))
    assert kept["step"] == derived["step"] == [*range(1, STEPS + 1)]
    assert None not in kept["value"]
    assert [step for step, value in enumerate(derived["value"], 1) if value is None] == list(UNREADABLE)


def test_a_step_that_is_asked_for_by_what_cannot_be_read_is_refused(served: Served) -> None:
    status, body = asked(served, "/v1/runs/a/worst?step=8")
    assert (status, json.loads(body)["type"].rpartition(":")[2]) == (410, "step-unreadable")
    assert asked(served, "/v1/runs/a/worst?step=7")[0] == 200


def test_a_scrape_has_every_run_and_the_log_says_once_what_is_missing(served: Served) -> None:
    for _ in range(3):
        status, body = asked(served, "/metrics")
        assert status == 200
        text = body.decode()
        assert K3.format("b") in text and K3.format("a") not in text
        assert 'offpolicy_step{run="a"} 8' in text
    assert answer(served, "/v1/runs/a/steps") and answer(served, "/v1/runs/a/steps")
    said = [json.loads(line)["step"] for line in served.log.read_text().splitlines() if "without its figures" in line]
    assert [said.count(step) for step in UNREADABLE] == [1, 1]


def test_the_run_goes_on(served: Served) -> None:
    status, body = asked(served, "/v1/runs/a/batches", good_frame(step=STEPS + 1))
    assert status == 200 and json.loads(body)["complete"]
    assert K3.format("a") in asked(served, "/metrics")[1].decode()


def test_a_training_step_of_which_a_part_cannot_be_read_is_judged_by_the_rest(served: Served) -> None:
    body = good_frame(step=1, minibatch=1, minibatches=2)
    status, told = asked(served, "/v1/runs/c/batches", body)
    assert status == 200 and json.loads(told)["complete"]
    assert answer(served, "/v1/runs/c/rules")["step"] == 1


def test_an_open_step_of_which_no_shard_can_be_read_is_shown_without_figures(served: Served) -> None:
    [row] = answer(served, "/v1/runs/d/steps")["steps"]
    assert (row["received_shards"], row["complete"], "gaps" in row) == (1, False, False)
    assert "Traceback" not in served.log.read_text()
