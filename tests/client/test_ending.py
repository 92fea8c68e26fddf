"""A run that ends normally says so, by the trainer of shard 0; one that crashes, is broken off or goes on does not."""

import json
import multiprocessing
import subprocess
import sys
from dataclasses import dataclass

import pytest
from offpolicy_monitor import Monitor
from offpolicy_monitor.client import ending

from tests.client.batches import batch
from tests.client.fakes import Fake, serving
from tests.fixtures.answering import Asked, Said

WITHIN = 30.0
SCRIPT = """
import sys
from offpolicy_monitor import Monitor
from tests.client.batches import batch
monitor = Monitor(sys.argv[1], "r", attempt=0)
monitor.log(step=0, **batch())
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


def of_script(more: str) -> bool:
    """Whether a process that logs and then does this has said that its run has ended; everything logged was sent."""
    fake = Fake()
    with serving(fake):
        subprocess.run([sys.executable, "-c", SCRIPT + more, fake.url], timeout=WITHIN, stderr=subprocess.DEVNULL)
    assert fake.steps() == [0]
    return ended(fake)


@pytest.mark.parametrize("more", ["", "sys.exit()", "monitor.close()", "monitor.finish()"])
def test_a_process_that_ends_by_itself_has_ended_its_run(more: str) -> None:
    assert of_script(more)


@pytest.mark.parametrize(
    "more",
    [
        "raise ValueError('CUDA error')",
        "raise KeyboardInterrupt",
        "sys.exit(1)",
        "try:\n  raise ValueError\nfinally:\n  monitor.close()",
        "with monitor:\n  raise ValueError",
        "monitor.close(finished=False)",
        "import __main__; __main__.__file__ = '/x/ray/_private/workers/default_worker.py'",
    ],
)
def test_a_process_that_does_not_has_not(more: str) -> None:
    assert not of_script(more)


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
    monkeypatch.setattr(ending, "_status", 0)
    assert ending.process_ends_well(before)
    assert not ending.process_ends_well(None)
    assert ending.is_normal(SystemExit(0)) and not ending.is_normal(SystemExit("no GPU"))
