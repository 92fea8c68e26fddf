"""What was read lately is answered while the run stands still, and by no one after it has moved."""

from collections.abc import Callable, Iterator

import pytest
from offpolicy_monitor.store import Store
from offpolicy_monitor.store.rows.lately import Lately
from offpolicy_monitor.store.rows.tables import runs
from sqlalchemy import Connection, update

from tests.fixtures.shards import make_record


@pytest.fixture
def connection(store: Store) -> Iterator[Connection]:
    store.ingest([make_record(1)])
    with store._database.writing() as connection:
        yield connection


def counting() -> Callable[[], int]:
    """Answers how often it was asked."""
    asked = iter(range(1, 100))
    return lambda: next(asked)


def test_the_same_question_is_read_once_until_the_run_moves(connection: Connection) -> None:
    lately, work = Lately[int](2), counting()
    assert [lately.read(connection, 1, "a", work) for _ in range(3)] == [1, 1, 1]
    assert lately.read(connection, 1, "b", work) == 2
    connection.execute(update(runs).values(revision=runs.c.revision + 1))
    assert [lately.read(connection, 1, "a", work) for _ in range(2)] == [3, 3]


def test_the_newest_questions_are_kept_and_none_of_a_run_without_a_revision(connection: Connection) -> None:
    lately, work = Lately[int](2), counting()
    assert [lately.read(connection, 1, asked, work) for asked in "abcbac"] == [1, 2, 3, 2, 4, 5]
    connection.execute(update(runs).values(revision=None))
    assert [lately.read(connection, 1, "c", work) for _ in range(2)] == [6, 7]


def test_what_a_shard_changes_is_in_the_next_answer(store: Store) -> None:
    store.ingest([make_record(1, tokens=100)])
    [(_, _, before)], count = store.spread_summaries("r1")
    store.ingest([make_record(2, tokens=50)])
    after, more = store.spread_summaries("r1")
    assert (before.step_figures()["tokens"], count, [each.step_figures()["tokens"] for *_, each in after], more) == (
        100,
        1,
        [100, 50],
        2,
    )
