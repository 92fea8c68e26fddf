"""Any history of shards, restarts and deadlines leaves what a plain replay of the rules says, bit for bit."""

from collections.abc import Callable
from contextlib import closing
from itertools import count

import orjson
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.store import Receipt, ShardKey, ShardRecord, Store
from offpolicy_monitor.store.rows.tables import runs, steps
from offpolicy_monitor.store.session import Database, parse_url
from offpolicy_monitor.summary import stored
from offpolicy_monitor.summary.step import StepSummary, merge_all
from sqlalchemy import select

from tests.fixtures.shards import make_record

SHARDS = st.builds(
    make_record,
    step=st.integers(0, 2),
    shard=st.integers(0, 2),
    shards=st.sampled_from([3, 3, 3, 4]),
    attempt=st.sampled_from([0, 0, 0, 1, 1, 2]),
    minibatch=st.integers(0, 1),
    content=st.sampled_from([0, 0, 0, 1]),
)

Key = tuple[int, int, int]


class Oracle:
    """The rules of the contract, one shard at a time, with everything kept in plain dicts."""

    def __init__(self) -> None:
        self.shards: dict[ShardKey, ShardRecord] = {}
        self.newest: dict[int, int] = {}
        self.closed: set[Key] = set()
        self.counted: dict[Key, ShardRecord] = {}

    def answer(self, record: ShardRecord) -> str:
        key = record.key
        if key.attempt < self.newest.get(key.step, 0):
            return "stale-attempt"
        declared = {r.shards for k, r in self.shards.items() if (k.step, k.attempt) == (key.step, key.attempt)}
        if declared - {record.shards}:
            return "shards-disagree"
        if key in self.shards:
            return "duplicate" if self.shards[key].digest == record.digest else "shard-conflict"
        self.shards[key] = record
        self.newest[key.step] = key.attempt
        where = (key.attempt, key.step, key.minibatch)
        if len(self.of(where)) == record.shards or where in self.closed:
            self.counted[where] = record
        return "stored"

    def close_all(self) -> None:
        for key in self.shards:
            where = (key.attempt, key.step, key.minibatch)
            if key.attempt == self.newest[key.step] and where not in self.counted:
                self.closed.add(where)
                self.counted[where] = self.shards[key]

    def of(self, where: Key) -> list[ShardRecord]:
        found = [r for k, r in self.shards.items() if (k.attempt, k.step, k.minibatch) == where]
        return sorted(found, key=lambda record: record.key.shard)

    def shown(self) -> list[Key]:
        keys = {(k.attempt, k.step, k.minibatch) for k in self.shards if k.attempt == self.newest[k.step]}
        return sorted(keys, key=lambda where: where[1:])

    def merged(self, where: Key) -> StepSummary:
        return merge_all(record.summary for record in self.of(where))


def as_json(summary: StepSummary) -> dict[str, object]:
    figures: dict[str, object] = orjson.loads(orjson.dumps(summary.step_figures()))
    return figures


class History(RuleBasedStateMachine):
    """Drives one run of a store and the oracle alike."""

    open_store: Callable[[], Store]
    url: str
    numbers = count()
    #: What was done since shards came: done again, it would change nothing.
    done: frozenset[str] = frozenset()

    @initialize()
    def begin(self) -> None:
        self.run = f"run-{next(self.numbers)}"
        self.oracle = Oracle()
        self.store = type(self).open_store()

    @rule(records=st.lists(SHARDS, min_size=1, max_size=6))
    def post(self, records: list[ShardRecord]) -> None:
        self.done = frozenset()
        mine = [self.renamed(record) for record in records]
        expected = [(self.oracle.answer(record), len(self.oracle.of(self.where(record)))) for record in mine]
        for record, answer, (kind, received) in zip(mine, self.store.ingest(mine), expected, strict=True):
            if isinstance(answer, Refusal):
                assert answer.kind == kind
                continue
            assert isinstance(answer, Receipt)
            assert ("duplicate" if answer.duplicate else "stored") == kind
            assert (answer.received_shards, answer.shards) == (received, record.shards)
            assert answer.complete == (received == record.shards)
            assert stored.to_bytes(answer.summary) == stored.to_bytes(self.oracle.shards[record.key].summary)

    @precondition(lambda self: "deadlines" not in self.done)
    @rule()
    def pass_deadlines(self) -> None:
        self.done = frozenset({"deadlines"})
        self.store.upkeep.sweep(1e9, 600.0)
        self.oracle.close_all()

    @precondition(lambda self: "restart" not in self.done)
    @rule()
    def restart(self) -> None:
        self.done |= {"restart"}
        self.store.close()
        self.store = type(self).open_store()

    @invariant()
    def steps_are_those_of_the_oracle(self) -> None:
        if not self.oracle.shards:
            return
        rows = self.store.steps(self.run, by="minibatch").rows
        assert [(row["attempt"], row["step"], row["minibatch"]) for row in rows] == self.oracle.shown()
        for row, where in zip(rows, self.oracle.shown(), strict=True):
            arrived = self.oracle.of(where)
            assert (row["received_shards"], row["shards"]) == (len(arrived), arrived[0].shards)
            assert row["complete"] == (len(arrived) == arrived[0].shards)
            figures = as_json(self.oracle.merged(where))
            assert {name: row[name] for name in figures if name != "breakdowns"} | {"breakdowns": {}} == figures

    @invariant()
    def gauges_are_of_the_latest_step_that_counts(self) -> None:
        if not self.oracle.shards:
            return
        [row] = [row for row in self.store.exported(10_000, 0.0) if row.run == self.run]
        latest = max(self.oracle.counted, default=None)
        assert (row.attempt, row.step, row.minibatch) == (latest or (None, None, None))
        assert row.figures == (as_json(self.oracle.merged(latest)) if latest else {})
        counted = [where for where in self.oracle.shown() if where in self.oracle.counted]
        series = self.store.series(self.run, "tokens")
        assert list(zip(series["step"], series["minibatch"], strict=True)) == [where[1:] for where in counted]
        assert series["value"] == [100 * len(self.oracle.of(where)) for where in counted]

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        self.store.close()
        with closing(Database(parse_url(self.url))) as database, database.reading() as connection:
            query = select(steps).join(runs).where(runs.c.name == self.run, steps.c.state != "open")
            for row in connection.execute(query):
                merged = self.oracle.merged((row.attempt, row.step, row.minibatch))
                assert row.summary == stored.to_bytes(merged)

    def renamed(self, record: ShardRecord) -> ShardRecord:
        """The same shard in the run of this example."""
        key = record.key
        step, content = key.step, 0 if record.digest == self.first_content(record).digest else 1
        return make_record(
            step, key.shard, record.shards, run=self.run, attempt=key.attempt, minibatch=key.minibatch, content=content
        )

    @staticmethod
    def first_content(record: ShardRecord) -> ShardRecord:
        key = record.key
        return make_record(key.step, key.shard, record.shards, attempt=key.attempt, minibatch=key.minibatch)

    @staticmethod
    def where(record: ShardRecord) -> Key:
        return record.key.attempt, record.key.step, record.key.minibatch


def test_any_history_leaves_what_the_oracle_says(database_url: str) -> None:
    class OnThisDatabase(History):
        open_store = staticmethod(lambda: Store.open(database_url, lambda: 1000.0))  # pyrefly: ignore[bad-override]
        url = database_url

    run_state_machine_as_test(
        OnThisDatabase,
        settings=settings(
            max_examples=12,
            stateful_step_count=20,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],  # shrinking a history takes minutes; the report shows it whole
            suppress_health_check=list(HealthCheck),
        ),
    )
