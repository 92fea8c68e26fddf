"""Figures of settled steps that are kept are those of the spans that stand, and no more of them than there is room."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.store import Store
from offpolicy_monitor.store.rows import spans
from offpolicy_monitor.store.rows.settled import Settled
from offpolicy_monitor.store.rows.step_index import StepIndex
from offpolicy_monitor.store.rows.tables import runs
from offpolicy_monitor.store.rows.tables import spans as table
from offpolicy_monitor.store.write.span import Span, keep
from sqlalchemy import Connection, delete, event, update

from tests.fixtures.shards import make_record

#: Steps of a span in these tests.
LENGTH = 8


@pytest.fixture
def connection(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """Of a run with id 1, of whose steps nothing is counted: every span stands."""
    monkeypatch.setattr(spans, "_count", lambda connection, run, last: last + 1)
    store.ingest([make_record(1)])
    with store._database.writing() as connection:
        yield connection


def put(connection: Connection, number: int, **figures: float) -> None:
    """The span of this number; each figure counts up from a value."""
    begin = number * LENGTH
    index = StepIndex.of([(begin + step, 0, None, 0, 0.0, 0.0) for step in range(LENGTH)])
    columns = {name: value + np.arange(float(LENGTH)) for name, value in figures.items()}
    keep(connection, Span(1, begin, begin + LENGTH - 1, LENGTH, index, columns))


def same(connection: Connection, settled: Settled, *names: str) -> bool:
    """Whether it answers what is read anew."""
    found, expected = settled.read(connection, 1, names), spans.read(connection, 1, None, None, names)
    assert found.end == expected.end and found.figures.keys() == expected.figures.keys()
    assert found.index.to_bytes() == expected.index.to_bytes()
    return all(np.array_equal(found.figures[name], expected.figures[name], equal_nan=True) for name in names)


@contextmanager
def read_bytes(connection: Connection) -> Iterator[list[Any]]:
    """The parameters of statements that read numbers of spans."""
    seen: list[Any] = []

    def see(*arguments: Any) -> None:
        if "numbers" in arguments[2]:
            seen.append(arguments[3])

    event.listen(connection, "before_cursor_execute", see)
    yield seen
    event.remove(connection, "before_cursor_execute", see)


def test_what_is_kept_is_what_stands(connection: Connection) -> None:
    settled = Settled()
    assert same(connection, settled, "a")
    put(connection, 0, a=1.0, b=2.0)
    assert same(connection, settled, "a", "none") and same(connection, settled, "b", "a")
    put(connection, 1, a=3.0)
    put(connection, 2, b=4.0, none=5.0)
    assert same(connection, settled, "none") and same(connection, settled, "a", "b")
    # One of them falls, and is made again of other rows.
    connection.execute(delete(table).where(table.c.step >= LENGTH))
    assert same(connection, settled, "a", "b")
    put(connection, 1, a=7.0)
    assert same(connection, settled, "a", "b", "none")


def test_only_what_came_since_is_read(connection: Connection) -> None:
    settled = Settled()
    put(connection, 0, a=1.0, b=2.0)
    settled.read(connection, 1, ("a", "absent"))
    with read_bytes(connection) as seen:
        settled.read(connection, 1, ("absent", "a"))
        assert seen == []
        settled.read(connection, 1, ("b",))
        assert len(seen) == 1
        put(connection, 1, a=3.0, b=4.0)
        seen.clear()
        settled.read(connection, 1, ("a",))
        assert len(seen) == 1 and LENGTH in _values(seen[0]) and 0 not in _values(seen[0])
        settled.read(connection, 1, ("b", "absent"))
        assert len(seen) == 1


def _values(parameters: Any) -> list[Any]:
    return list(parameters.values() if isinstance(parameters, dict) else parameters)


def test_nothing_is_taken_for_a_later_run_of_the_same_id(connection: Connection) -> None:
    settled = Settled()
    put(connection, 0, a=1.0)
    settled.read(connection, 1, ("a",))
    connection.execute(update(runs).values(created_at=runs.c.created_at + 1))
    put(connection, 0, a=9.0)
    assert same(connection, settled, "a")


def test_a_run_that_takes_more_than_there_is_room_is_answered_and_not_kept(connection: Connection) -> None:
    put(connection, 0, a=1.0, b=2.0)
    small = Settled(most=LENGTH * 8)
    assert same(connection, small, "a", "b") and not small._kept
    # What no step has takes no room.
    room = LENGTH * 8 * (len(fields(StepIndex)) + 1)
    exact = Settled(most=room)
    exact.read(connection, 1, ("a", "absent", "lacking"))
    assert exact._kept
    exact.read(connection, 1, ("b",))
    assert not exact._kept
