"""A run that ends normally says so, by the trainer of shard 0; one that crashes, is broken off or goes on does not."""

import json
import multiprocessing
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from offpolicy_monitor import Monitor
from offpolicy_monitor.client import run_end

from tests.client.batches import batch
from tests.client.fakes import Fake, serving
from tests.fixtures.http_stub import Asked, Said

WITHIN = 30.0
#: What a process does after it has logged, and whether that ends its run.
ENDS = {
    "": True,
    "sys.exit()": True,
    "monitor.close()": True,
    "monitor.finish()": True,
    "raise ValueError('CUDA error')": False,
    "raise KeyboardInterrupt": False,
    "sys.exit(1)": False,
    "try:\n  raise ValueError\nfinally:\n  monitor.close()": False,
    "with monitor:\n  raise ValueError": False,
    "monitor.close(finished=False)": False,
    "import __main__; __main__.__file__ = '/x/ray/_private/workers/default_worker.py'": False,
}
#: Forks once for each, so that all import once: what a fork does from there on is all that its interpreter does.
SCRIPT = """
import os, sys
from offpolicy_monitor import Monitor
from tests.client.batches import batch
for url, more in zip(sys.argv[1::2], sys.argv[2::2]):
    if os.fork() == 0:
        break
    os.wait()
else:
    os._exit(0)
monitor = Monitor(url, "r", attempt=0)
monitor.log(step=0, **batch())
exec(more)
"""


@dataclass
class Busy(Fake):
    """One that has no time for the first `refusals` changes of a run."""

    refusals: int = 0

    def answer(self, asked: Asked) -> Said:
        found = super().answer(asked)
        if asked.method == "PATCH" and self.refusals:
            self.refusals -= 1
            return Said(503)
        return found


def endings(fake: Fake) -> list[object]:
    """What was asked after it: that a run has ended."""
    return [json.loads(asked.body) for asked in fake.asked if asked.method == "PATCH" and b"finished" in asked.body]


def ended(fake: Fake) -> bool:
    """Whether it was said, once and last of all."""
    said = endings(fake)
    assert said in ([], [{"finished": True}])
    assert not said or (fake.asked[-1].method, fake.asked[-1].path) == ("PATCH", "/v1/runs/r")
    return bool(said)


@pytest.fixture(scope="module")
def services() -> dict[str, Fake]:
    """What a service was asked by processes that log and then do this."""
    fakes = {more: Fake() for more in ENDS}
    with ExitStack() as stack:
        given = [text for more, fake in fakes.items() for text in (stack.enter_context(serving(fake)).url, more)]
        subprocess.run([sys.executable, "-c", SCRIPT, *given], timeout=WITHIN, check=True, stderr=subprocess.DEVNULL)
    return fakes


@pytest.mark.parametrize("more", [more for more, ends in ENDS.items() if ends])
def test_a_process_that_ends_by_itself_has_ended_its_run(services: dict[str, Fake], more: str) -> None:
    assert services[more].steps() == [0]
    assert ended(services[more])


@pytest.mark.parametrize("more", [more for more, ends in ENDS.items() if not ends])
def test_a_process_that_does_not_has_not(services: dict[str, Fake], more: str) -> None:
    assert services[more].steps() == [0]
    assert not ended(services[more])


def log_in_child(url: str, closes: bool) -> None:
    monitor = Monitor(url, "r", attempt=0)
    monitor.log(step=0, **batch())
    monitor.flush()
    if closes:
        monitor.close()


@pytest.mark.parametrize("closes", [False, True])
def test_a_child_process_says_nothing_at_its_exit_and_all_when_it_is_asked_to(closes: bool) -> None:
    fake = Fake()
    with serving(fake):
        child = multiprocessing.get_context("spawn").Process(target=log_in_child, args=(fake.url, closes))
        child.start()
        child.join(WITHIN)
    assert (child.exitcode, fake.steps(), ended(fake)) == (0, [0], closes)


def test_only_the_trainer_of_shard_0_speaks_for_the_run() -> None:
    fake = Fake()
    with serving(fake), Monitor(fake.url, "r", attempt=0) as monitor:
        monitor.log(step=0, shard=1, shards=2, **batch())
        assert monitor.finish() is False
    assert endings(fake) == []
    with serving(fake):
        Monitor(fake.url, "r", attempt=0).close()
    assert endings(fake) == []


def test_a_driver_that_has_posted_nothing_speaks_for_its_workers_where_it_is_told_to() -> None:
    fake = Fake()
    with serving(fake), Monitor(fake.url, "r", attempt=0) as driver:
        assert driver.finish(for_run=True)
    assert ended(fake)


def test_an_end_is_said_once_and_again_after_another_batch() -> None:
    fake = Fake()
    with serving(fake), Monitor(fake.url, "r", attempt=0) as monitor:
        monitor.log(step=0, **batch())
        assert monitor.finish() and monitor.finish() and ended(fake)
        monitor.log(step=1, **batch())
        assert monitor.finish()
    assert [asked.method for asked in fake.asked] == ["POST", "PATCH", "POST", "PATCH"]


def test_a_service_that_is_busy_is_told_again_and_one_that_is_away_costs_no_more_than_the_deadline() -> None:
    fake = Busy(refusals=1)
    with serving(fake):
        monitor = Monitor(fake.url, "r", attempt=0)
        monitor.log(step=0, **batch())
        assert monitor.finish() and len(endings(fake)) == 2
        monitor.log(step=1, **batch())
        assert monitor.flush()
    assert monitor.finish(deadline=0.3) is False
    assert "does not know that the run has ended" in monitor.stats["last_error"]
    monitor.close(finished=False)


def test_a_caught_exit_and_an_error_of_before_are_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ValueError("of a cell that was mended")
    monkeypatch.setattr(sys, "last_value", before, raising=False)
    monkeypatch.setattr(run_end, "_status", 0)
    assert run_end.process_ends_well(before)
    assert not run_end.process_ends_well(None)
    assert run_end.is_normal(SystemExit(0)) and not run_end.is_normal(SystemExit("no GPU"))
