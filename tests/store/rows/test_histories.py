"""A history that is kept grows by a step at a time, and is read anew where it is not what is stored."""

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.server.judge import RulesJudge
from offpolicy_monitor.store import Store
from offpolicy_monitor.store.rows import training_steps
from offpolicy_monitor.store.rows.codec import unpack
from offpolicy_monitor.store.rows.gradient_steps import GradientStep
from offpolicy_monitor.store.rows.histories import FIRST, NEWEST, Histories, RunHistory
from offpolicy_monitor.store.rows.tables import judged_steps
from offpolicy_monitor.store.rows.training_step import TrainingStep
from offpolicy_monitor.store.rows.training_steps import IN_METRICS, figures_of, forget, keep
from offpolicy_monitor.store.session import Database, parse_url
from sqlalchemy import Connection, select

from tests.fixtures.shards import make_record

PATHS = ("a", "b")


@pytest.fixture
def connection(store: Store, database_url: str) -> Iterator[Connection]:
    """A transaction with run 1 in it."""
    store.ingest([make_record()])
    database = Database(parse_url(database_url))
    with database.writing() as connection:
        yield connection
    database.close()


def judged(connection: Connection, histories: Histories | None, step: int, value: float, attempt: int = 0) -> None:
    """Judge a step by these figures; `histories` None: another process does."""
    figures = {"a": value, "b": -value} if value else {"a": value}
    of_step = TrainingStep.of([GradientStep("r1", step, 0, attempt, 1, 1.0, 1.0)])
    checksum = keep(connection, (1, step), of_step, figures)
    if histories is not None:
        histories.add(1, (step, attempt, checksum), figures)


def same(left: RunHistory, right: RunHistory) -> bool:
    equal = [np.array_equal(left.columns[path], right.columns[path], equal_nan=True) for path in PATHS]
    return list(left.steps) == list(right.steps) and all(equal)


def test_what_was_added_is_what_is_read_anew(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Histories(PATHS)
    judged(connection, kept, 0, 1.0)
    kept.read(connection, 1)
    with monkeypatch.context() as patched:
        patched.setattr(Histories, "_load", lambda *arguments: pytest.fail("was read anew"))
        for step in range(1, FIRST + NEWEST + 5):
            judged(connection, kept, step, step % 7)
            found = deepcopy(kept.read(connection, 1))
        judged(connection, kept, 3, 0.5)
        judged(connection, kept, FIRST + NEWEST, 0.25)
        again = kept.read(connection, 1)
    assert (
        len(found.steps) == FIRST + NEWEST and found.steps[FIRST - 1] == FIRST - 1 and found.steps[FIRST] == FIRST + 5
    )
    assert not same(found, again)
    assert same(again, Histories(PATHS).read(connection, 1))


def test_a_figure_has_a_column_from_the_first_step_on_that_has_it(connection: Connection) -> None:
    kept = Histories(PATHS)
    judged(connection, kept, 0, 0.0)
    assert set(kept.read(connection, 1).columns) == {"a"}
    judged(connection, kept, 1, 2.0)
    for found in (kept.read(connection, 1), Histories(PATHS).read(connection, 1)):
        assert {path: found.columns[path].tolist()[1] for path in PATHS} == {"a": 2.0, "b": -2.0}
        assert len(found.columns["b"]) == 2 and math.isnan(found.columns["b"][0])
    judged(connection, None, 2, 0.0)
    assert same(kept.read(connection, 1), Histories(PATHS).read(connection, 1))


def test_what_another_process_judged_is_seen(connection: Connection) -> None:
    kept = Histories(PATHS)
    for step in range(4):
        judged(connection, kept, step, 1.0)
    kept.read(connection, 1)
    for step, value in ((4, 2.0), (1, 3.0)):
        judged(connection, None, step, value)
        assert same(kept.read(connection, 1), Histories(PATHS).read(connection, 1))
    judged(connection, kept, 9, 1.0)
    judged(connection, None, 7, 1.0)
    assert list(kept.read(connection, 1).steps) == [0, 1, 2, 3, 4, 7, 9]


def test_a_transaction_that_failed_leaves_nothing_wrong(connection: Connection) -> None:
    kept = Histories(PATHS)
    judged(connection, kept, 0, 1.0)
    kept.read(connection, 1)
    savepoint = connection.begin_nested()
    judged(connection, kept, 1, 2.0)
    savepoint.rollback()
    assert list(kept.read(connection, 1).steps) == [0]
    judged(connection, kept, 1, 3.0)
    assert kept.read(connection, 1).columns["a"].tolist() == [1.0, 3.0]


def test_a_step_that_came_late_and_a_new_attempt_are_seen(connection: Connection) -> None:
    kept = Histories(PATHS)
    for step in (0, 1, 2, 4, 5, 6):
        judged(connection, kept, step, 1.0)
        kept.read(connection, 1)
    judged(connection, kept, 3, 9.0)
    assert kept.read(connection, 1).columns["a"].tolist() == [1, 1, 1, 9, 1, 1, 1]
    forget(connection, [(1, 2)])
    judged(connection, kept, 2, 7.0, attempt=1)
    found = kept.read(connection, 1)
    assert list(found.steps) == [0, 1, 2] and found.columns["b"].tolist() == [-1, -1, -7]
    assert same(found, Histories(PATHS).read(connection, 1))


@pytest.mark.parametrize("number", [40, FIRST + NEWEST + 60], ids=["all of them are seen", "more than are seen"])
def test_steps_that_come_out_of_their_order_are_where_they_would_be_read(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    kept, random = Histories(PATHS), np.random.default_rng(5)
    for step in range(FIRST + 1):
        judged(connection, kept, step, 1.0)
    noted = kept.read(connection, 1).noted
    steps = np.arange(FIRST + 1, number)
    late = steps[np.argsort(steps + random.integers(0, 16, len(steps)), kind="stable")].tolist()
    assert late != sorted(late)
    with monkeypatch.context() as patched:
        patched.setattr(Histories, "_load", lambda *arguments: pytest.fail("was read anew"))
        for step in late:
            judged(connection, kept, step, step % 7)
            found = kept.read(connection, 1)
            assert all(list(notes) == found.steps[: len(notes)] for notes in noted.values())
            noted["step"] = [float(step) for step in found.steps]
    assert same(found, Histories(PATHS).read(connection, 1))


def test_of_what_is_read_anew_only_what_is_not_known_is(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, read = Histories(PATHS), list[int]()
    for step in range(FIRST + NEWEST):
        judged(connection, kept, 2 * step, 1.0)
        kept.read(connection, 1)
    judged(connection, kept, 7, 2.0)  # among the first, which it moves
    monkeypatch.setattr(training_steps, "unpack", lambda packed: read.append(1) or unpack(packed))
    found = kept.read(connection, 1)
    assert found.steps[FIRST - 1] == 2 * FIRST - 4 and len(found.steps) == FIRST + NEWEST
    assert len(read) == 1
    monkeypatch.undo()
    assert same(found, Histories(PATHS).read(connection, 1))


@pytest.mark.parametrize(
    "again",
    [{"attempt": 1, "minibatches": 1}, {"minibatch": 1, "minibatches": 2}],
    ids=["another attempt", "a late gradient step"],
)
def test_a_process_that_begins_reads_what_the_one_before_judged_by(
    open_store: Callable[..., Store], database_url: str, again: dict[str, Any]
) -> None:
    """Of a step of one gradient step its headline figures have it: nothing is kept twice."""
    store = open_store(judge=RulesJudge())
    records = [make_record(step, minibatches=1, policy_version=3 * step, tokens=50 + step) for step in range(6)]
    records += [make_record(6, minibatch=number, minibatches=2) for number in range(2)]
    for record in records:
        store.ingest([record])
    assert [step for step, own in own_figures(database_url) if own] == [6]
    assert_read_as_judged(store, database_url)
    store.ingest([make_record(4, **again)])
    assert [step for step, own in own_figures(database_url) if own] == ([6] if "attempt" in again else [4, 6])
    assert_read_as_judged(store, database_url)


@pytest.mark.parametrize(
    "case", ["a gradient step is open", "another had two", "two are declared", "it is judged again"]
)
def test_a_late_shard_changes_nothing_that_was_said_before_its_step_is_judged_again(
    open_store: Callable[..., Store], database_url: str, case: str
) -> None:
    """A step that was closed without it was judged; its headline figures are of both shards from then on."""
    store = open_store(judge=RulesJudge())
    store.ingest([make_record(step, shard, 2, policy_version=step) for step in range(3) for shard in range(2)])
    store.ingest([make_record(3, 0, 2, policy_version=3)])
    assert store.upkeep.sweep(1e10, 10)
    assert own_figures(database_url)[3] == (3, True)
    if case == "a gradient step is open":
        store.ingest([make_record(3, 0, 2, minibatch=1, policy_version=3)])
    if case == "another had two":
        store.ingest([make_record(4, shard, 2, minibatch=n, minibatches=2) for n in range(2) for shard in range(2)])
    declared = 2 if case == "two are declared" else None
    store.ingest([make_record(3, 1, 2, policy_version=9, minibatches=declared)])
    assert dict(own_figures(database_url))[3] == (case != "it is judged again")
    assert_read_as_judged(store, database_url)


def test_a_step_that_was_judged_by_nothing_is_read_so(connection: Connection) -> None:
    of_step = TrainingStep.of([GradientStep("r1", 0, 0, 0, 1, 1.0, 1.0)])
    keep(connection, (1, 0), of_step, {})
    assert figures_of(connection, 1, [0]) == {0: {}}


def own_figures(database_url: str) -> list[tuple[int, bool]]:
    """The steps that were judged, and whether what they were judged by is kept with that."""
    with closing(Database(parse_url(database_url))) as database, database.reading() as connection:
        rows = connection.execute(select(judged_steps.c.step, judged_steps.c.figures).order_by(judged_steps.c.step))
        return [(step, unpack(figures) != IN_METRICS) for step, figures in rows]


def assert_read_as_judged(store: Store, database_url: str) -> None:
    judging = store._judging
    [judged_by] = judging.histories._kept.values()
    with closing(Database(parse_url(database_url))) as database, database.reading() as connection:
        found = Histories(judging.judge.paths).read(connection, 1)
    assert found.versions == judged_by.versions
    assert found.columns.keys() == judged_by.columns.keys() >= {"gaps.mismatch.k3", "policy_version"}
    for path, column in found.columns.items():
        assert np.array_equal(column, judged_by.columns[path], equal_nan=True), path


def test_a_run_that_was_never_judged_has_no_history(connection: Connection) -> None:
    assert list(Histories(PATHS).read(connection, 1).steps) == []


def test_notes_follow_their_steps_and_go_from_a_step_on_that_changes(connection: Connection) -> None:
    kept = Histories(PATHS)
    judged(connection, kept, 0, 1.0)
    noted = kept.read(connection, 1).noted
    for step in range(1, FIRST + NEWEST + 2):
        judged(connection, kept, step, 1.0)
        noted["step"] = [float(step) for step in kept.read(connection, 1).steps]
    judged(connection, kept, FIRST + NEWEST + 2, 1.0)
    found = kept.read(connection, 1)
    assert noted["step"] == found.steps[:-1]
    judged(connection, kept, 40, 2.0)
    assert noted["step"] == [step for step in found.steps if step < 40]
