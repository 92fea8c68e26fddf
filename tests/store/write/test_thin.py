"""Steps of a month ago are thin: headline figures stay and what-if reads sums over many; the rest has gone."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import pytest
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.store import Receipt, ShardRecord, Store
from offpolicy_monitor.store.rows import histories
from offpolicy_monitor.store.rows.alerts import Episode
from offpolicy_monitor.store.rows.held import HeldRun
from offpolicy_monitor.store.rows.histories import RunHistory
from offpolicy_monitor.store.rows.tables import blocks, judged_steps, shards, steps
from offpolicy_monitor.store.session import Database, parse_url
from offpolicy_monitor.store.write import settle, thin
from offpolicy_monitor.store.write.judge import Judge
from offpolicy_monitor.summary.step import merge_all
from sqlalchemy import func, select

from tests.fixtures.shards import make_record
from tests.fixtures.stores import Clock, Place

DAY, MONTH = 86_400.0, 30 * 86_400.0
#: Steps of a run that are thin after a month: 200 of 250, the newest 50 keep a summary of their own.
STEPS, THIN = 250, 200


class Watching(Judge):
    """A judge that says nothing and remembers the steps that it was shown."""

    paths: Sequence[str] = ("tokens",)
    seen: Sequence[int] = ()

    def __init__(self) -> None:
        pass

    def steps(
        self, run: HeldRun, history: RunHistory, before: Sequence[Episode]
    ) -> tuple[list[dict[str, Any]], list[Episode]]:
        self.seen = history.steps
        return [], list(before)


class Rows(NamedTuple):
    """How many there are; of figures and summaries those that steps have."""

    shards: int
    judged: int
    blocks: int
    figures: int
    summaries: int


def rows(url: str) -> Rows:
    """What is in the database."""
    database = Database(parse_url(url))
    columns = (shards.c.shard, judged_steps.c.step, blocks.c.id, steps.c.figures, steps.c.summary)
    with database.reading() as connection:
        found = [connection.execute(select(func.count(column))).scalar_one() for column in columns]
    database.close()
    return Rows(*found)


def records_of(count: int = STEPS) -> list[ShardRecord]:
    """Steps of two shards."""
    return [make_record(step, shard, 2, minibatches=1) for step in range(count) for shard in range(2)]


def fill(store: Store, clock: Clock, count: int = STEPS) -> list[ShardRecord]:
    """These steps, which are a month old then and share summaries by tens."""
    records = records_of(count)
    for start in range(0, len(records), 100):
        store.ingest(records[start : start + 100])
    store.upkeep.sweep(0.0, 600.0)
    clock.now += MONTH + 1
    store.upkeep.tidy(DAY, 10)
    return records


@pytest.fixture(scope="module")
def filled(place: Place, empty_database: str) -> str:
    """A database with them."""
    url = place.copy(empty_database)
    with closing(Store.open(url, clock := Clock())) as store:
        fill(store, clock)
    return url


@pytest.fixture
def old_url(place: Place, filled: str) -> Iterator[str]:
    """A copy of it."""
    with place.copied(filled) as url:
        yield url


@pytest.fixture
def old(old_url: str, clock: Clock) -> Iterator[Store]:
    """Its store."""
    clock.now += MONTH + 1
    with closing(Store.open(old_url, clock)) as store:
        yield store


def is_part(part: Any, whole: Any) -> bool:
    """Whether all of the part's figures are in the whole, of the same kind and value."""
    if not isinstance(part, dict):
        return type(part) is type(whole) and bool(part == whole)
    return all(name in whole and is_part(value, whole[name]) for name, value in part.items())


def test_a_thin_step_keeps_its_headline_figures_alone(old: Store, old_url: str) -> None:
    fields = ("gaps.mismatch.k3", "methods.opsm.masked_token_fraction", "tokens")
    series = {field: old.series("r1", field) for field in fields}
    before = old.step("r1", 7)
    assert before["gaps"]["mismatch"]["k2"] == old.series("r1", "gaps.mismatch.k2")["value"][7]

    assert old.upkeep.thin(MONTH) == THIN

    assert {field: old.series("r1", field) for field in fields} == series
    after = old.step("r1", 7)
    assert is_part(after | {"breakdowns": {}}, before | {"breakdowns": {}}) and after["breakdowns"] == {}
    assert {"k1", "k3", "chi2"} < set(after["gaps"]["mismatch"]) < set(before["gaps"]["mismatch"])
    assert set(after["methods"]["opsm"]) == {"masked_token_fraction"}
    assert {"received_shards", "shards", "complete", "tokens", "minibatches"} < set(after)
    values = old.series("r1", "gaps.mismatch.k2")["value"]
    assert values[:THIN] == [None] * THIN and None not in values[THIN:]
    listed = old.steps("r1", limit=1000).rows
    assert [row["step"] for row in listed] == list(range(STEPS))
    assert listed[7] == {name: value for name, value in after.items() if name not in ("breakdowns", "minibatches")}
    assert rows(old_url) == Rows(2 * (STEPS - THIN), 0, THIN // 100, 0, STEPS - THIN)
    assert old.upkeep.thin(MONTH) == 0


def test_sums_over_thin_steps_are_those_of_their_shards(old: Store) -> None:
    old.upkeep.thin(MONTH)
    found = old.summaries("r1", most=1000)
    assert [step for step, _, _ in found[:3]] == [99, 199, 200]
    whole, every = merge_all(summary for _, _, summary in found), merge_all(record.summary for record in records_of())
    assert whole.batch == every.batch
    assert whole.gaps["mismatch"].sums["k3"] == pytest.approx(every.gaps["mismatch"].sums["k3"], rel=1e-12)
    with pytest.raises(Refusal, match="shares its summary"):
        old.summary("r1", 4)


def test_a_month_counts_from_the_newest_shard_of_a_block(old: Store, clock: Clock) -> None:
    clock.now -= 2
    assert old.upkeep.thin(MONTH) == 0
    clock.now += 2
    assert old.upkeep.thin(MONTH) == THIN


def test_a_shard_of_a_thin_step_is_recognised_no_more_and_refused(old: Store) -> None:
    records = records_of(1)
    [again] = old.ingest(records[:1])
    assert isinstance(again, Receipt) and again.duplicate
    old.upkeep.thin(MONTH)
    for record in (records[0], make_record(0, 1, 2, content=9), make_record(0, 0, 2, minibatch=1)):
        [refusal] = old.ingest([record])
        assert isinstance(refusal, Refusal) and refusal.kind == "step-settled"
        assert "OFFPOLICY_THIN_AFTER" in refusal.detail
    [receipt] = old.ingest([make_record(0, attempt=1, tokens=7)])
    assert isinstance(receipt, Receipt) and receipt.complete
    assert (old.step("r1", 0)["tokens"], old.step("r1", 1)["tokens"]) == (7, 200)


def test_rules_look_back_on_what_they_did_before_steps_were_thin(
    open_store: Callable[..., Store], database_url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histories, "_OLDEST", histories._OLDEST.limit(5))
    monkeypatch.setattr(histories, "_NEWEST", histories._NEWEST.limit(80))
    judge = Watching()
    store = open_store(judge)
    fill(store, clock)
    assert rows(database_url).judged == STEPS
    store.upkeep.thin(MONTH)
    assert rows(database_url).judged == 5 + 80
    store.close()
    store = open_store(judge)
    store.update_run("r1", profile="fp8")
    assert list(judge.seen) == [*range(5), *range(STEPS - 80, STEPS)]


def test_gauges_of_a_run_whose_last_step_is_thin_are_its_headline_figures(old: Store, clock: Clock) -> None:
    old.ingest([make_record(3, shards=1, attempt=1, minibatches=1)])
    clock.now += MONTH
    old.upkeep.tidy(DAY, 10)
    old.upkeep.thin(MONTH)
    [run] = old.exported(9, 0.0)
    assert (run.step, run.attempt) == (3, 1)
    assert run.figures["gaps"]["mismatch"]["k3"] > 0


def test_a_crash_between_two_portions_loses_nothing(
    open_store: Callable[[], Store], database_url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thin, "PORTION", 30)
    monkeypatch.setattr(settle, "KEPT", 5)
    store = open_store()
    records = fill(store, clock, 205)
    store.ingest([make_record(run="other")])
    turns = 0

    def turn(work: Callable[[], int]) -> int:
        nonlocal turns
        turns += 1
        if turns % 4 == 0:
            raise InterruptedError("the process was killed")
        return work()

    for _ in range(20):
        try:
            store.upkeep.thin(MONTH, turn)
        except InterruptedError:
            store.close()
            store = open_store()
    assert rows(database_url) == Rows(11, 0, 2, 0, 6)
    whole = merge_all(summary for _, _, summary in store.summaries("r1", most=1000))
    assert whole.batch == merge_all(record.summary for record in records).batch
    store.delete_run("r1")
    store.upkeep.purge()
    assert rows(database_url) == Rows(1, 0, 0, 0, 1)
