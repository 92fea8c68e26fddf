"""A scrape comes in time, with runs or without."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.server.exported import Exported
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store.leader import Alone


class Hanging:
    """A store that answers once it is let."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.asked = 0

    def exported(self, limit: int, active_since: float) -> Any:
        self.asked += 1
        self.let.wait(20)
        return ["a run"]


class Away(Hanging):
    def exported(self, limit: int, active_since: float) -> Any:
        raise Unavailable(503, "store-unavailable", "away")


class Follower(Alone):
    def leads(self) -> bool:
        return False


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    store = Hanging()
    yield store
    store.let.set()


def test_a_store_that_hangs_shows_no_runs_until_it_answers_again(hanging: Hanging) -> None:
    exported = Exported(hanging, Settings(), Alone().leads, within=0.2)
    began = time.monotonic()
    assert [exported() for _ in range(3)] == [(), (), ()]
    assert time.monotonic() - began < 10
    assert hanging.asked == 1
    hanging.let.set()
    assert exported() == ["a run"]
    exported.close()


def test_a_store_that_is_away_shows_no_runs() -> None:
    exported = Exported(Away(), Settings(), Alone().leads)
    assert exported() == ()
    exported.close()


def test_a_follower_does_not_ask(hanging: Hanging) -> None:
    exported = Exported(hanging, Settings(), Follower().leads)
    assert exported() is None
    assert hanging.asked == 0
    exported.close()
