"""A deleted run is gone for every reader at once; its rows go in portions, and go on after a crash."""

from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from typing import Any

import pytest
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.store import Receipt, Store
from offpolicy_monitor.store.rows.tables import alerts, judgements, metrics, runs, shards, steps
from offpolicy_monitor.store.session import Database, parse_url
from offpolicy_monitor.store.write import delete
from sqlalchemy import event, func, select

from tests.fixtures.shards import make_record

TABLES = (runs, shards, steps, metrics, judgements, alerts)


def rows(url: str) -> list[int]:
    database = Database(parse_url(url))
    with database.reading() as connection:
        found = [connection.execute(select(func.count()).select_from(table)).scalar_one() for table in TABLES]
    database.close()
    return found


def test_a_deleted_run_vanishes_before_its_rows_do_and_frees_its_name(store: Store, database_url: str) -> None:
    store.ingest([make_record(step) for step in range(3)])
    store.delete_run("r1")
    assert store.runs().rows == []
    assert store.exported(9, 0.0) == []
    assert rows(database_url)[:3] == [1, 3, 3]
    with pytest.raises(Refusal, match="no run named"):
        store.steps("r1")
    with pytest.raises(Refusal, match="no run named"):
        store.delete_run("r1")
    [receipt] = store.ingest([make_record(1, content=7)])
    assert isinstance(receipt, Receipt) and (receipt.duplicate, receipt.complete) == (False, True)
    store.upkeep.purge()
    assert rows(database_url)[:3] == [1, 1, 1]
    assert [row["step"] for row in store.steps("r1").rows] == [1]


def test_steps_of_a_deleted_run_are_not_closed_any_more(store: Store) -> None:
    store.ingest([make_record(shards=2)])
    store.delete_run("r1")
    assert store.upkeep.sweep(1e9, 600.0) == 0
    assert store.upkeep.watch(expiry=86_400.0) == 0


def test_a_run_goes_in_portions_and_lets_others_write_between_them(
    open_store: Callable[[], Store], database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delete, "PORTION", 4)
    store = open_store()
    for step in range(10):
        store.ingest([make_record(step, shard, 2) for shard in range(2)])
    store.delete_run("r1")
    left: list[list[int]] = []

    def turn(work: Callable[[], int]) -> int:
        if len(left) == 3:
            raise InterruptedError("the process was killed")
        found = work()
        left.append(rows(database_url)[1:3])
        store.ingest([make_record(len(left), run="other")])
        return found

    with pytest.raises(InterruptedError):
        store.upkeep.purge(turn)
    assert all(before[0] + before[1] - sum(after) + 1 <= 5 for before, after in pairwise(left))
    assert sum(left[-1]) > 10

    store.close()
    store = open_store()
    assert store.upkeep.purge() > 5
    assert rows(database_url)[:3] == [1, 3, 3]
    assert [run["run"] for run in store.runs().rows] == ["other"]


def test_two_processes_delete_different_runs(postgres_url: str) -> None:
    with closing(Store.open(postgres_url)) as first, closing(Store.open(postgres_url)) as second:
        for run in ("a", "b"):
            first.ingest([make_record(run=run)])
            first.delete_run(run)
        database = Database(parse_url(postgres_url))
        with database.writing() as connection:
            assert delete.Deletion().portion(connection)
            assert second.upkeep.purge() > 0
            assert rows(postgres_url)[:3] == [1, 1, 1]
        first.upkeep.purge()
        assert rows(postgres_url)[:3] == [0, 0, 0]
        database.close()


def test_rows_that_are_gone_are_not_walked_over_again(
    store: Store, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delete, "PORTION", 4)
    store.ingest([make_record(step) for step in range(20)])
    store.delete_run("r1")
    asked: list[str] = []

    def see(*arguments: Any) -> None:
        asked.append(arguments[2])

    with closing(Database(parse_url(database_url))) as database:
        deletion, more = delete.Deletion(), True
        while more:
            with database.writing() as connection:
                event.listen(connection, "before_cursor_execute", see)
                more = deletion.portion(connection)
                event.remove(connection, "before_cursor_execute", see)
    # Of each table every portion but the first one is looked for after the one before it.
    of_steps = [">" in text for text in asked if text.startswith("DELETE FROM steps")]
    assert of_steps == [False, *[True] * 5]
    of_others = [text for text in asked if text.startswith("DELETE FROM waiting_steps")]
    assert len(of_others) == 1
    assert rows(database_url)[:3] == [0, 0, 0]
