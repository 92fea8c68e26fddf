"""What a process remembers of a run spares statements, and is forgotten where somebody else has changed the run."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.server.judge import RulesJudge
from offpolicy_monitor.store import Receipt, ShardRecord, Store
from offpolicy_monitor.store.rows.alerts import Episode
from offpolicy_monitor.store.rows.held import HeldRun
from offpolicy_monitor.store.rows.histories import RunHistory
from offpolicy_monitor.store.rows.statement import Statement
from offpolicy_monitor.store.rows.tables import runs, steps
from offpolicy_monitor.store.session import Database, parse_url
from offpolicy_monitor.store.write.judge import States
from sqlalchemy import Connection, NullPool, create_engine, text, update

from tests.fixtures.postgres import END_OTHERS
from tests.fixtures.shards import make_record
from tests.fixtures.stores import Clock

Open = Callable[..., Store]


@pytest.fixture
def other(database_url: str, clock: Clock) -> Iterator[Store]:
    """Another process: a store that shares the database, and nothing of what is remembered."""
    with closing(Store(Database(parse_url(database_url)), None, clock, RulesJudge())) as store:
        yield store


def stored(store: Store, *records: ShardRecord) -> list[Receipt]:
    receipts = [answer for answer in store.ingest(records) if isinstance(answer, Receipt)]
    assert len(receipts) == len(records)
    return receipts


def asked(monkeypatch: pytest.MonkeyPatch, store: Store, record: ShardRecord) -> int:
    """How many statements that answer something one shard takes."""
    count = 0
    rows = Statement.rows

    def counted(self: Statement, connection: Connection, **parameters: Any) -> Any:
        nonlocal count
        count += 1
        return rows(self, connection, **parameters)

    with monkeypatch.context() as patched:
        patched.setattr(Statement, "rows", counted)
        stored(store, record)
    return count


def test_of_a_run_that_is_remembered_little_is_asked(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(judge=RulesJudge())
    stored(store, make_record(0, minibatches=1))
    stored(store, make_record(1, minibatches=1))
    # The run, which is held; and the row of its step, for its id.
    assert asked(monkeypatch, store, make_record(2, minibatches=1)) == 2
    # One shard of several: the run and the row alone, and no row for the next.
    assert asked(monkeypatch, store, make_record(3, 0, 3, minibatches=1)) == 2
    assert asked(monkeypatch, store, make_record(3, 1, 3, minibatches=1)) == 1
    store.update_run("r1", profile="fp8")
    assert asked(monkeypatch, store, make_record(4, minibatches=1)) > 2


def test_two_processes_that_take_turns_store_what_one_alone_does(
    open_store: Open, other: Store, database_url: str, clock: Clock
) -> None:
    store = open_store(judge=RulesJudge())
    stores = (store, other)
    records = [make_record(step, shard, 3, minibatches=1) for step in range(6) for shard in range(3)]
    again = [make_record(4, shard, 2, attempt=1, minibatches=1) for shard in range(2)]
    for turn, record in enumerate([*records, *again]):
        [receipt] = stored(stores[turn % 2], record)
        assert not receipt.duplicate
    for turn, record in enumerate((records[0], again[1])):
        assert [receipt.duplicate for one in stores for receipt in stored(one, record)] == [True, True]
        assert isinstance(stores[turn].ingest([make_record(4, 0, 3)])[0], Refusal)
    alone = [make_record(step, shard, 3, run="alone", minibatches=1) for step in range(6) for shard in range(3)]
    for record in alone:
        stored(store, record)
    found = {run: [row["received_shards"] for row in store.steps(run).rows] for run in ("r1", "alone")}
    assert found == {"r1": [3, 3, 3, 3, 2, 3], "alone": [3] * 6}
    # A new attempt of a step takes the later ones out of what is judged.
    assert (store.states("r1")[0], store.states("alone")[0]) == (4, 5)


def test_what_another_process_has_settled_takes_no_shard(open_store: Open, other: Store, clock: Clock) -> None:
    store = open_store(judge=RulesJudge())
    clock.now = 1000.0
    for step in range(2):
        stored(store, make_record(step, 0, 2, minibatches=1))
    other.upkeep.sweep(clock.now + 100, 50)
    clock.now = 90_000.0
    other.upkeep.tidy(3600, 1)
    [answer] = store.ingest([make_record(1, 1, 2, minibatches=1)])
    assert isinstance(answer, Refusal) and answer.kind == "step-settled"


def test_what_an_older_release_has_stored_is_seen(open_store: Open, database_url: str) -> None:
    store = open_store(judge=RulesJudge())
    stored(store, make_record(0, 0, 2, minibatches=1))
    database = Database(parse_url(database_url))
    with database.writing() as connection:
        connection.execute(update(steps).values(block=0))
        connection.execute(update(runs).values(last_batch_at=1001.0))
    database.close()
    [answer] = store.ingest([make_record(0, 1, 2, minibatches=1)])
    assert isinstance(answer, Refusal) and answer.kind == "step-settled"


@dataclass(frozen=True)
class Failing(RulesJudge):
    """Rules that fail after they have judged, once for each entry of `failures`."""

    failures: list[Exception] = field(default_factory=list)

    def steps(self, run: HeldRun, history: RunHistory, before: Any) -> tuple[States, list[Episode]]:
        found = super().steps(run, history, before)
        if self.failures:
            raise self.failures.pop()
        return found


def test_names_of_figures_that_a_failed_transaction_entered_are_entered_again(open_store: Open) -> None:
    judge = Failing(failures=[RuntimeError("a defect")])
    store = open_store(judge=judge)
    with pytest.raises(RuntimeError):
        store.ingest([make_record(0, minibatches=1)])
    stored(store, make_record(0, minibatches=1, tokens=70))
    assert store.series("r1", "tokens")["value"] == [70]


def test_a_transaction_that_failed_is_not_remembered(open_store: Open) -> None:
    judge = Failing()
    store = open_store(judge=judge)
    stored(store, make_record(0, minibatches=1))
    stored(store, make_record(1, 0, 2, minibatches=1))
    judge.failures.append(RuntimeError("a defect"))
    with pytest.raises(RuntimeError):
        store.ingest([make_record(1, 1, 2, minibatches=1)])
    assert store.step("r1", 1)["received_shards"] == 1
    [receipt] = stored(store, make_record(1, 1, 2, minibatches=1))
    assert (receipt.duplicate, receipt.received_shards, receipt.step_completed) == (False, 2, True)
    assert store.states("r1")[0] == 1


def test_what_a_server_has_lost_that_took_the_place_of_another_is_not_taken_for_known(
    postgres_url: str, clock: Clock
) -> None:
    """As after a failover to a replica that was behind: names of figures are gone, and every connection with them."""
    engine = create_engine(postgres_url, poolclass=NullPool)
    with closing(Store.open(postgres_url, clock)) as store:
        stored(store, make_record(0))
        with engine.begin() as connection:
            for table in ("metrics", "metric_names", "shards", "steps"):
                connection.execute(text(f"DELETE FROM {table}"))
            connection.execute(text(END_OTHERS))
        stored(store, make_record(1))
        assert [row["step"] for row in store.steps("r1").rows] == [1]
    with engine.connect() as connection:
        query = "SELECT count(*) FROM metrics JOIN metric_names ON metric_names.id = names_id"
        assert connection.execute(text(query)).scalar_one() == 1
