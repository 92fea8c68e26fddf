"""Those that compute for long in Python do so one at a time; who waits lets others, and nobody waits for ever."""

import threading
from collections.abc import Callable, Iterator

import pytest
from offpolicy_monitor import interpreter
from offpolicy_monitor.interpreter import computing, waiting
from offpolicy_monitor.store.patience import Patience

LONG = 10.0


class Other:
    """A thread that computes until it is told to end: `begun` when it does, `ended` when it has."""

    def __init__(self) -> None:
        self.begun, self.ended, self.end = threading.Event(), threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        with computing():
            self.begun.set()
            self.end.wait(LONG)
            self.ended.set()


@pytest.fixture
def another() -> Iterator[Callable[[], Other]]:
    """Makes one more of them; all are ended with the test."""
    others = list[Other]()

    def make() -> Other:
        others.append(Other())
        return others[-1]

    yield make
    for other in others:
        other.end.set()
        other.thread.join(LONG)


def test_one_computes_at_a_time(another: Callable[[], Other]) -> None:
    first = another()
    assert first.begun.wait(LONG)
    second = another()
    assert not second.begun.wait(0.05)
    first.end.set()
    assert second.begun.wait(LONG)


def test_who_waits_lets_another_compute_and_goes_on_when_it_has_ended(another: Callable[[], Other]) -> None:
    patience = Patience(LONG)
    with computing():
        other = another()
        with patience.waiting():
            assert other.begun.wait(LONG)
            threading.Timer(0.1, other.end.set).start()
        assert other.ended.is_set()
        assert patience.left > LONG - 0.09  # a turn that is waited for is no wait for the database
        third = another()
        assert not third.begun.wait(0.05)
    assert third.begun.wait(LONG)


def test_a_wait_of_a_thread_that_does_not_compute_for_long_takes_nothing_from_who_does(
    another: Callable[[], Other],
) -> None:
    first = another()
    assert first.begun.wait(LONG)
    with waiting():
        second = another()
        assert not second.begun.wait(0.05)
    first.end.set()
    assert second.begun.wait(LONG)


def test_what_hangs_in_its_turn_keeps_nobody_for_ever(
    another: Callable[[], Other], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "LONGEST", 0.05)
    first = another()
    assert first.begun.wait(LONG)
    with computing(), waiting():
        assert not first.ended.is_set()
    monkeypatch.undo()
    # The one that hangs still has its turn, which nobody gave back for it.
    second = another()
    assert not second.begun.wait(0.05)
    first.end.set()
    assert second.begun.wait(LONG)
