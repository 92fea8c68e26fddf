"""Figures of settled steps in columns: every answer is as without them, whoever changes the steps that they are of."""

from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import md5
from typing import Any

import pytest
from offpolicy_monitor.store import Store
from offpolicy_monitor.store.rows import tables
from offpolicy_monitor.store.rows.lately import Lately
from offpolicy_monitor.store.session import Database, parse_url
from offpolicy_monitor.store.write import settle, span
from sqlalchemy import delete, func, select

from tests.fixtures.shards import make_record
from tests.fixtures.stores import Clock, Place

Open = Callable[..., Store]
DAY = 86_400.0
FIELDS = ["gaps.mismatch.k3", "policy_version", "attempt", "verdict", "received_at", "correction.masked_token_fraction"]
#: Steps of the run; every third has two gradient steps, and from the fortieth on a method is in use.
STEPS = 60
WATCHED = ("tokens", "gaps.mismatch.k3")
#: When they were settled, unix seconds.


OLD = 1000.0 + 2 * DAY


#: Steps from and to; and how they are asked for: all steps in every way, each range in some, so that every way is there
#: with a range within the run too.
RANGES = [(None, None), (3, None), (None, 41), (17, 38), (50, 59), (7, 7), (90, 99)]
FORMS = [("step", 1000), ("minibatch", 1000), ("minibatch", 7), ("step", 7)]
MOST = (0, 7, 200)


def in_small_parts(patch: pytest.MonkeyPatch) -> None:
    """Few of the newest steps are not settled, and spans are of sixteen gradient steps."""
    patch.setattr(settle, "KEPT", 4)
    patch.setattr(span, "ROWS", 16)


@pytest.fixture(scope="module")
def settled(place: Place, empty_database: str) -> str:
    """A database with a run whose steps are settled but for the newest ones."""
    url, clock = place.copy(empty_database), Clock()
    with pytest.MonkeyPatch.context() as patch, closing(Store.open(url, clock, watched=WATCHED)) as store:
        in_small_parts(patch)
        for begin, attempt in ((0, 0), (20, 1), (40, 1)):
            if begin == 40:
                store.update_run("r1", correction="opsm")
            store.ingest(
                [of_step(step, part, attempt) for step in range(begin, STEPS) for part in range(1 + (step % 3 == 0))]
            )
        clock.now = OLD
        store.upkeep.tidy(DAY, 5)
    return url


@pytest.fixture
def database_url(place: Place, settled: str) -> Iterator[str]:
    """A copy of it."""
    with place.copied(settled) as url:
        yield url


@pytest.fixture
def old(open_store: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Its store."""
    in_small_parts(monkeypatch)
    clock.now = OLD
    return open_store(watched=WATCHED)


def of_step(step: int, part: int = 0, attempt: int = 0, **options: Any) -> Any:
    """Every fifth step came without a policy version."""
    version = None if step % 5 == 0 else step
    return make_record(step, minibatch=part, attempt=attempt, policy_version=version, tokens=100 + step, **options)


def answers(store: Store) -> str:
    """Everything that reads many steps, over all of them and over ranges; as a digest, since it is long."""
    store._series._plots = Lately(1)
    series = [
        store.all_series("r1", [*FIELDS, "sequence_length_max"], *of_range, points, by)
        for index, of_range in enumerate(RANGES)
        for by, points in (FORMS if index == 0 else FORMS[index % 2 :: 2])
    ]
    store._overviews._kept.clear()
    overview = store.view_run("r1").overview
    tables_ = (overview.drawn, overview.first, overview.newest)
    store._summaries._spread = Lately(1)
    spread = [
        store.spread_summaries("r1", *of_range, most)
        for index, of_range in enumerate(RANGES)
        for most in (MOST if index == 0 else MOST[index % 3 :][:1])
    ]
    of_steps = [
        ([(*place, summary.step_figures()["tokens"]) for *place, summary in summaries], count)
        for summaries, count in spread
    ]
    found = [series, of_steps, [(table.steps.tolist(), table.figures.tolist()) for table in tables_]]
    return md5(repr(found).encode()).hexdigest()


def counted(url: str) -> int:
    """Rows of spans."""
    with closing(Database(parse_url(url))) as database, database.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(tables.spans)).scalar_one())


def without_spans(url: str, store: Store) -> str:
    """The answers as they are off a row for each step."""
    with closing(Database(parse_url(url))) as database, database.writing() as connection:
        connection.execute(delete(tables.spans))
    return answers(store)


def test_figures_in_columns_are_those_of_the_rows(old: Store, database_url: str) -> None:
    expected = answers(old)
    assert old.upkeep.put_into_columns(most=1) == 16
    assert answers(old) == expected
    assert old.upkeep.put_into_columns() > 32
    assert answers(old) == expected
    assert counted(database_url) > 0
    assert old.upkeep.put_into_columns() == 0
    assert without_spans(database_url, old) == expected


@pytest.mark.parametrize("step", [0, 7, 33, 55])
def test_a_step_that_another_attempt_replaces_is_seen_at_once(old: Store, database_url: str, step: int) -> None:
    old.upkeep.put_into_columns()
    before = answers(old)
    old.ingest([of_step(step, attempt=2, content=9)])
    after = answers(old)
    assert after != before
    assert without_spans(database_url, old) == after


def test_columns_are_made_again_once_what_replaced_a_step_has_settled(
    old: Store, database_url: str, clock: Clock
) -> None:
    made = old.upkeep.put_into_columns()
    old.ingest([of_step(step, attempt=2, content=9) for step in range(12, 30)])
    assert old.upkeep.put_into_columns() == 0
    clock.now += 2 * DAY
    old.upkeep.tidy(DAY, 5)
    expected = answers(old)
    assert old.upkeep.put_into_columns() > 0
    assert answers(old) == expected
    assert counted(database_url) > 0 < made


def test_of_a_run_that_is_deleted_nothing_remains(old: Store, database_url: str) -> None:
    old.upkeep.put_into_columns()
    old.delete_run("r1")
    old.upkeep.purge()
    assert counted(database_url) == 0
