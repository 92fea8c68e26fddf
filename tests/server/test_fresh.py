"""Answers about runs that somebody looks at are made again after a step, and nothing is done of others."""

import asyncio
import time

import pytest
from offpolicy_monitor.errors import Refusal, Unavailable
from offpolicy_monitor.server.fresh import SHARE, Fresh, rested


class Answering:
    """A store in which these runs have moved; those that fail raise this."""

    def __init__(self, *moved: str, failing: Exception | None = None) -> None:
        self._moved, self._failing = moved, failing
        self.read: list[str] = []

    def moved(self, since: float) -> list[str]:
        assert since < time.monotonic()
        return list(self._moved)

    def read_again(self, run: str, since: float) -> None:
        self.read.append(run)
        if self._failing is not None and run == "failing":
            raise self._failing


def test_all_that_moved_are_read_with_what_is_said_of_them() -> None:
    store, said = Answering("one", "two"), list[str]()
    assert Fresh(store, said.append).make() == 2
    assert store.read == said == ["one", "two"]


def test_one_that_cannot_be_answered_any_more_keeps_no_other_from_it() -> None:
    store, said = Answering("failing", "two", failing=Refusal(404, "unknown-run", "gone")), list[str]()
    assert Fresh(store, said.append).make() == 2
    assert said == ["two"]


def test_a_database_that_is_away_is_left_alone_and_a_defect_is_told() -> None:
    away = Unavailable(503, "store-unavailable", "away")
    assert Fresh(Answering("failing", "two", failing=away), lambda run: None).make() == 0
    with pytest.raises(ZeroDivisionError):
        Fresh(Answering("failing", failing=ZeroDivisionError()), lambda run: None).make()


@pytest.mark.parametrize("done", [0, 3])
def test_it_takes_a_share_of_the_time_and_rests_after_nothing_not_at_all(done: int) -> None:
    async def work() -> int:
        await asyncio.sleep(0.02)
        return done

    began = time.monotonic()
    assert asyncio.run(rested(work)) == done
    taken = time.monotonic() - began
    assert taken >= 0.02 / SHARE if done else taken < 0.02 / SHARE
