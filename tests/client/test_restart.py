"""A service that is killed in mid-run and started again: what fits the queue arrives, and nothing is counted twice."""

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from offpolicy_monitor import Monitor

from tests.client.batches import batch
from tests.fixtures.service import COMMAND, DEFAULTS, clean_environment, free_port, stop, wait_until_ready

STEPS, PACE = 40, 0.05  # seconds
KILLED, STARTED = 10, 20  # steps


@contextmanager
def served(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The service on this port with the database of this folder."""
    variables = clean_environment() | DEFAULTS | {"OFFPOLICY_DATABASE_URL": f"sqlite:///{folder / 'service.db'}"}
    with (folder / "service.log").open("ab") as log:
        subprocess.run([*COMMAND, "db", "upgrade"], env=variables, stdout=log, stderr=log, check=True)
        process = subprocess.Popen([*COMMAND, "serve", "--port", str(port)], env=variables, stdout=log, stderr=log)
        try:
            yield process
        finally:
            stop(process)


def test_a_run_outlives_a_killed_service_without_a_loss_or_a_double(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arrays = batch(8, 64)
    pi = arrays.pop("logprobs")
    with Monitor(url, "r", timeout=2.0) as monitor, served(tmp_path, port) as first:
        wait_until_ready(url, first)
        with served_later(tmp_path, port) as start:
            for step in range(STEPS):
                if step == KILLED:
                    first.send_signal(signal.SIGKILL)
                    first.wait()
                if step == STARTED:
                    second = start()
                monitor.log(step=step, rollout=f"r{step}", **arrays)
                for minibatch in range(2):
                    monitor.log(
                        step=step, minibatch=minibatch, rollout=f"r{step}", logprobs=pi - np.float32(step / 100)
                    )
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


@contextmanager
def served_later(folder: Path, port: int):  # type: ignore[no-untyped-def]
    """A function that starts the service; it is stopped at the end."""
    entered = []

    def start() -> subprocess.Popen[bytes]:
        context = served(folder, port)
        entered.append(context)
        return context.__enter__()

    try:
        yield start
    finally:
        for context in entered:
            context.__exit__(None, None, None)
