"""The schema of a PostgreSQL that is in use changes: nothing waits for it, who does not know it stores as before."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

import pytest
from offpolicy_monitor.store import Receipt, Store, migrate
from offpolicy_monitor.store.rows import tables
from offpolicy_monitor.store.rows.spans import INDEX
from offpolicy_monitor.store.session import Database, parse_url
from offpolicy_monitor.store.write import settle, span
from sqlalchemy import delete, func, select

from tests.fixtures.revisions import downgrade
from tests.fixtures.shards import make_record
from tests.fixtures.stores import Clock

BEFORE, DAY = "0014", 86_400.0
FIELDS: Final = ["gaps.mismatch.k3", "tokens", "attempt"]
SETTLED: Final = 80


@contextmanager
def storing(url: str) -> Iterator[list[float]]:
    """A process that knows nothing of the newest tables stores one step after another: seconds that each took."""
    ended, taken = threading.Event(), list[float]()

    def store_all() -> None:
        with closing(Store.open(url, Clock(1000.0 + 2 * DAY))) as store:
            while not ended.wait(0.002):
                began = time.monotonic()
                [answer] = store.ingest([make_record(len(taken), run="busy", received_at=1000.0 + 2 * DAY)])
                assert isinstance(answer, Receipt) and not answer.duplicate
                taken.append(time.monotonic() - began)

    thread = threading.Thread(target=store_all)
    thread.start()
    try:
        yield taken
    finally:
        ended.set()
        thread.join()


def more(taken: list[float]) -> None:
    """Return when some more were stored."""
    wanted, deadline = len(taken) + 5, time.monotonic() + 20
    while len(taken) < wanted:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def read(store: Store) -> object:
    """What a page draws of the settled run."""
    return store.all_series("r1", FIELDS, by="step")


def test_a_database_in_use_is_upgraded_and_filled_beside_those_that_know_nothing_of_it(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "KEPT", 4)
    monkeypatch.setattr(span, "ROWS", 16)
    with closing(Store.open(postgres_url, Clock())) as store:
        store.ingest([make_record(step, tokens=100 + step) for step in range(SETTLED)])
    downgrade(postgres_url, BEFORE)
    clock = Clock(1000.0 + 2 * DAY)
    with closing(Store.open(postgres_url, clock)) as older, storing(postgres_url) as taken:
        more(taken)
        older.upkeep.tidy(DAY, 5)
        migrate.upgrade(postgres_url)
        with closing(Store.open(postgres_url, clock)) as newer:
            assert newer.upkeep.put_into_columns(most=2) == 32
            # Of a step that is in columns already, by one who does not know them; then the rest is filled.
            older.ingest([make_record(40, attempt=1, tokens=7)])
            newer.upkeep.put_into_columns()
            found = read(newer)
            more(taken)
    assert max(taken) < 3.0
    with closing(Store.open(postgres_url, clock)) as store:
        assert len(store.series("busy", "tokens", points=10_000)["step"]) == len(taken)
        with closing(Database(parse_url(postgres_url))) as database, database.writing() as connection:
            of_indices = select(func.count()).select_from(tables.spans).where(tables.spans.c.name == INDEX)
            assert connection.execute(of_indices).scalar_one() == 2
            connection.execute(delete(tables.spans))
        assert read(store) == found
    assert migrate.check(postgres_url) == []
