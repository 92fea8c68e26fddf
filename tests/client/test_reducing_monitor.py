"""A monitor that reduces at the source, against a running service: two-phase posts, and rows that change in mid-run."""

import json
import urllib.request
from pathlib import Path
from typing import Any

from offpolicy_monitor import Monitor

from tests.fixtures.reduced import arrays_of
from tests.fixtures.service import DEFAULTS, running_service


def called(url: str, method: str = "GET", value: Any = None) -> Any:
    body = None if value is None else json.dumps(value).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_a_reducing_monitor_leaves_the_steps_that_a_raw_one_leaves(tmp_path: Path) -> None:
    arrays: dict[str, Any] = arrays_of(0)
    rollout = {name: array for name, array in arrays.items() if name != "logprobs"}
    ids = [f"p{i}" for i in range(6)]
    with running_service(tmp_path, **DEFAULTS) as url:  # who reduces does so by torch
        sent = {}
        for run, reduce in (("raw", False), ("reduced", True)):
            with Monitor(url, run, reduce=reduce, timeout=60) as monitor:
                monitor.log(step=0, policy_version=12, sequence_ids=ids, **arrays)
                monitor.log(step=1, rollout="1", policy_version=12, sequence_ids=ids, **rollout)
                monitor.log(step=1, rollout="1", policy_version=13, logprobs=arrays["logprobs"])
                assert monitor.flush(60)
                called(f"{url}/v1/runs/{run}", "PATCH", {"methods": ["grpo"]})
                monitor.log(step=2, **arrays)
                assert monitor.flush(60)
                assert monitor.stats["errors"] == 0, monitor.stats
                sent[run] = monitor.stats["sent_bytes"]
        for step in (0, 1, 2):
            raw, reduced = (called(f"{url}/v1/runs/{run}/steps/{step}") for run in ("raw", "reduced"))
            for name in ("tokens", "sequences", "gaps", "methods", "breakdowns", "versions", "complete"):
                assert reduced.get(name) == raw.get(name), (step, name)
            worst = [called(f"{url}/v1/runs/{run}/worst?step={step}")["sequences"] for run in ("raw", "reduced")]
            assert worst[0] == worst[1] != []
        assert called(f"{url}/v1/runs/reduced/steps/2")["methods"].keys() == {"grpo"}
