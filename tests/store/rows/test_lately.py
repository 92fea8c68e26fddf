"""What was read lately is answered while the run stands still, and by no one after it has moved."""

import time
from collections.abc import Callable, Iterator

import pytest
from offpolicy_monitor.store import Store
from offpolicy_monitor.store.rows.lately import Lately, revision
from offpolicy_monitor.store.rows.tables import runs
from sqlalchemy import Connection, update

from tests.fixtures.shards import make_record


@pytest.fixture
def connection(store: Store) -> Iterator[Connection]:
    store.ingest([make_record(1)])
    with store._database.writing() as connection:
        yield connection


def counting() -> Callable[[Connection], int]:
    """Answers how often it was asked."""
    asked = iter(range(1, 100))
    return lambda connection: next(asked)


def move(connection: Connection) -> None:
    connection.execute(update(runs).values(revision=runs.c.revision + 1))


def test_the_same_question_is_read_once_until_the_run_moves(connection: Connection) -> None:
    lately, work = Lately[int](2), counting()
    assert [lately.read(connection, 1, "a", work) for _ in range(3)] == [1, 1, 1]
    assert lately.read(connection, 1, "b", work) == 2
    move(connection)
    assert [lately.read(connection, 1, "a", work) for _ in range(2)] == [3, 3]


def test_the_newest_questions_are_kept_and_none_of_a_run_without_a_revision(connection: Connection) -> None:
    lately, work = Lately[int](2), counting()
    assert [lately.read(connection, 1, asked, work) for asked in "abcbac"] == [1, 2, 3, 2, 4, 5]
    connection.execute(update(runs).values(revision=None))
    assert [lately.read(connection, 1, "c", work) for _ in range(2)] == [6, 7]


def test_what_was_asked_of_a_run_that_moved_is_read_again_before_it_is_asked(connection: Connection) -> None:
    lately, work = Lately[int](4), counting()
    before = time.monotonic()
    assert [lately.read(connection, 1, asked, work) for asked in "abcd"] == [1, 2, 3, 4]
    lately.again(connection, 1, before, most=4)
    under = revision(connection, 1)
    move(connection)
    assert lately.asked_since(before) == {1: {under}} != {1: {revision(connection, 1)}}
    lately.again(connection, 1, before, most=2)
    assert lately.asked_since(before) == {1: {revision(connection, 1)}}
    # The newest two, in the order in which they were asked; the others were forgotten.
    assert [lately.read(connection, 1, asked, work) for asked in "cdab"] == [5, 6, 7, 8]


def test_what_nobody_has_asked_for_long_is_not_read_again(connection: Connection) -> None:
    lately, work = Lately[int](4), counting()
    lately.read(connection, 1, "a", work)
    since = time.monotonic()
    move(connection)
    assert lately.asked_since(since) == {}
    lately.again(connection, 1, since, most=2)
    assert lately.read(connection, 1, "a", work) == 2


def test_reading_again_is_not_asking(connection: Connection) -> None:
    lately = Lately[int](4)
    lately.read(connection, 1, "a", counting())
    since = time.monotonic()
    move(connection)
    lately.again(connection, 1, since - 60, most=2)
    assert lately.asked_since(since) == {}


def test_what_can_be_answered_no_more_is_raised_and_forgotten(connection: Connection) -> None:
    lately, answers = Lately[int](4), iter([1])
    lately.read(connection, 1, "a", lambda connection: next(answers))
    move(connection)
    with pytest.raises(StopIteration):
        lately.again(connection, 1, 0.0, most=2)
    assert lately.asked_since(0.0) == {}


def test_of_a_store_plots_and_answers_are_read_again(store: Store) -> None:
    def tokens() -> tuple[list[float], float]:
        [table] = store.tables("r1", ["tokens"], None, None, 100, "step")
        return list(table["values"]["tokens"]), store.answered("r1", "newest", lambda: newest())

    def newest() -> float:
        asked.append(1)
        return store.summaries("r1")[-1][2].step_figures()["tokens"]

    asked: list[int] = []
    store.ingest([make_record(1, tokens=100)])
    before = time.monotonic()
    assert tokens() == ([100], 100) and store.moved(before) == []
    store.ingest([make_record(2, tokens=50)])
    assert store.moved(before) == ["r1"] and store.moved(time.monotonic()) == []
    store.read_again("r1", before)
    assert store.moved(before) == [] and len(asked) == 2
    assert tokens() == ([100, 50], 50) and len(asked) == 2


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
