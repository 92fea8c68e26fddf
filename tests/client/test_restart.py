"""A service that is killed in mid-run and started again: what fits the queue arrives, and nothing is counted twice."""

import signal
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import numpy as np
from offpolicy_monitor import Monitor

from tests.client.batches import batch
from tests.fixtures.service import COMMAND, DEFAULTS, Served, free_port, served, wait_until_ready

STEPS, PACE = 40, 0.05  # seconds
KILLED, STARTED = 10, 20  # steps


def on_port(folder: Path, port: int) -> AbstractContextManager[Served]:
    """The service on this port with the database of this folder, as soon as it is begun."""
    database = {"OFFPOLICY_DATABASE_URL": f"sqlite:///{folder / 'service.db'}"}
    return served([*COMMAND, "serve", "--port"], folder / "service.log", DEFAULTS | database, port)


def test_a_run_outlives_a_killed_service_without_a_loss_or_a_double(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arrays = batch(8, 64)
    pi = arrays.pop("logprobs")
    with ExitStack() as stack, Monitor(url, "r", timeout=2.0) as monitor:
        first = stack.enter_context(on_port(tmp_path, port)).process
        wait_until_ready(url, first)
        for step in range(STEPS):
            if step == KILLED:
                first.send_signal(signal.SIGKILL)
                first.wait()
            if step == STARTED:
                second = stack.enter_context(on_port(tmp_path, port)).process
            monitor.log(step=step, rollout=f"r{step}", **arrays)
            for minibatch in range(2):
                monitor.log(step=step, minibatch=minibatch, rollout=f"r{step}", logprobs=pi - np.float32(step / 100))
            time.sleep(PACE)
        wait_until_ready(url, second)
        assert monitor.flush(60.0)
        stats = dict(monitor.stats)
        tokens = monitor.series("gaps.total.tokens", points=1000)
        runs = monitor.runs()
    assert (stats["logged"], stats["sent"], stats["dropped"], stats["errors"]) == (3 * STEPS, 3 * STEPS, 0, 0)
    assert stats["retries"] > 0 and stats["duplicates"] <= 2
    assert tokens["step"].tolist() == [step for step in range(STEPS) for _ in range(2)]
    assert tokens["minibatch"].tolist() == [0, 1] * STEPS
    assert tokens["value"].tolist() == [512.0] * (2 * STEPS)
    assert [(run["last_step"], run["last_minibatch"], run["attempt"]) for run in runs] == [(STEPS - 1, 1, 0)]
