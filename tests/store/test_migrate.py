"""The schema is what the tables say, on both databases, and an upgrade happens whole or not at all."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from offpolicy_monitor.errors import ConfigurationError, Unavailable
from offpolicy_monitor.store import Receipt, Store, migrate
from offpolicy_monitor.store.failures import Damaged
from offpolicy_monitor.store.lock import WriterLock
from offpolicy_monitor.store.rows.alerts import Episode
from offpolicy_monitor.store.rows.held import HeldRun
from offpolicy_monitor.store.rows.histories import RunHistory
from offpolicy_monitor.store.session import Database, parse_url
from offpolicy_monitor.store.write import settle
from offpolicy_monitor.store.write.judge import Judge
from sqlalchemy import text

from tests.fixtures.revisions import downgrade
from tests.fixtures.shards import make_record
from tests.fixtures.stores import Clock


def test_the_migrations_make_exactly_the_tables(database_url: str) -> None:
    assert migrate.check(database_url) == []
    assert migrate.current(database_url) == migrate.head()


def test_upgrading_twice_changes_nothing(database_url: str) -> None:
    assert migrate.upgrade(database_url) == migrate.head()
    assert migrate.check(database_url) == []


def test_a_database_of_an_older_program_keeps_its_runs(database_url: str) -> None:
    downgrade(database_url, "0001")
    database = Database(parse_url(database_url))
    with database.writing() as connection:
        values = "('old', 'fp8', '{}', 1.0)"
        connection.execute(text(f"INSERT INTO runs (name, profile, labels, created_at) VALUES {values}"))
    database.close()
    assert migrate.current(database_url) == "0001"
    [message] = migrate.check(database_url)
    assert "revision 0001" in message

    migrate.upgrade(database_url)

    assert migrate.check(database_url) == []
    store = Store.open(database_url)
    found = store.run("old")
    store.close()
    assert (found["profile"], found["methods"]) == ("fp8", None)


def test_histories_of_an_older_program_are_judged_on(database_url: str) -> None:
    judge, again = Watching(), Watching()
    with closing(Store.open(database_url, lambda: 1000.0, judge)) as store:
        store.ingest([make_record(step, minibatches=1, tokens=100 + step, policy_version=step) for step in range(6)])
        store.ingest([make_record(6, minibatch=index, minibatches=3, tokens=200) for index in range(2)])
        store.ingest([make_record(3, attempt=1, minibatches=1, tokens=7, policy_version=9)])
    expected = {path: column.tolist() for path, column in judge.seen.columns.items()}
    downgrade(database_url, "0004")

    migrate.upgrade(database_url)

    assert migrate.check(database_url) == []
    with closing(Store.open(database_url, lambda: 1000.0, again)) as store:
        store.update_run("r1", profile="fp8")
        assert list(again.seen.steps) == [0, 1, 2, 3]
        assert {path: column.tolist() for path, column in again.seen.columns.items()} == expected
        # How many gradient steps its steps have is known as well: one.
        store.ingest([make_record(4, attempt=1, tokens=8)])
    assert again.seen.columns["tokens"].tolist() == [100, 101, 102, 7, 8]


class Watching(Judge):
    """A judge that says nothing and remembers what it was shown."""

    paths: Sequence[str] = ("tokens", "gaps.mismatch.k3", "policy_version")
    seen: RunHistory

    def __init__(self) -> None:
        pass

    def steps(
        self, run: HeldRun, history: RunHistory, before: Sequence[Episode]
    ) -> tuple[list[dict[str, Any]], list[Episode]]:
        self.seen = history
        return [], list(before)


def test_steps_of_an_older_program_keep_their_figures_and_take_less_room(database_url: str) -> None:
    store = Store.open(database_url)
    store.ingest([make_record(step, shard, 2) for step in range(4) for shard in range(2)])
    alone = make_record(4)
    store.ingest([alone, make_record(5, shards=2)])
    series, rows = store.series("r1", "gaps.mismatch.k3"), store.steps("r1").rows
    store.close()
    downgrade(database_url, "0005")
    database = Database(parse_url(database_url))
    with database.reading() as connection:
        count = "SELECT count(*) FROM {} WHERE length(summary) > 0"
        assert connection.execute(text(count.format("shards"))).scalar() == 10
        assert connection.execute(text("SELECT count(DISTINCT step_id) FROM metrics WHERE value > 0")).scalar() == 5
    database.close()

    migrate.upgrade(database_url)

    assert migrate.check(database_url) == []
    store = Store.open(database_url)
    assert (store.series("r1", "gaps.mismatch.k3"), store.steps("r1").rows) == (series, rows)
    [again] = store.ingest([alone])
    assert isinstance(again, Receipt) and again.duplicate and again.summary.batch == alone.summary.batch
    [late] = store.ingest([make_record(5, 1, 2)])
    assert isinstance(late, Receipt) and late.step_completed
    store.close()


def test_check_names_a_column_that_the_tables_do_not_have(database_url: str) -> None:
    database = Database(parse_url(database_url))
    with database.writing() as connection:
        connection.execute(text("ALTER TABLE runs ADD COLUMN stray INTEGER"))
    database.close()
    [difference] = migrate.check(database_url)
    assert "stray" in difference


def test_check_of_a_missing_file_says_to_upgrade_and_makes_no_file(tmp_path: Path) -> None:
    [message] = migrate.check(f"sqlite:///{tmp_path / 'none.db'}")
    assert "offpolicy-monitor db upgrade" in message
    assert list(tmp_path.iterdir()) == []


def test_a_database_of_a_newer_program_is_refused(database_url: str) -> None:
    database = Database(parse_url(database_url))
    with database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    with pytest.raises(ConfigurationError, match="9999"):
        migrate.upgrade(database_url)
    [message] = migrate.check(database_url)
    assert "9999" in message
    assert "newer" in message
    assert "upgrade" not in message
    assert migrate.outdated(database_url, ", or pass --migrate") == message


def filled(folder: Path) -> tuple[str, Path]:
    """A database with a few hundred pages."""
    path = folder / "offpolicy.db"
    url = f"sqlite:///{path}"
    migrate.upgrade(url)
    with closing(Store.open(url)) as store:
        store.ingest([make_record(shard) for shard in range(64)])
    return url, path


#: Rows that fill pages, and bytes of each: a walk over all of them takes many times as long as FIRST_LOOK.
FILLING, WIDE, FIRST_LOOK = 600_000, 16, 0.002


def test_a_large_file_is_looked_through_for_so_long_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.db"
    url = f"sqlite:///{path}"
    migrate.upgrade(url)
    with closing(sqlite3.connect(path)) as connection, connection:
        numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {FILLING}) SELECT i"
        connection.execute("CREATE TABLE filling (number INTEGER PRIMARY KEY, bytes BLOB)")
        connection.execute(f"INSERT INTO filling {numbers}, zeroblob({WIDE}) FROM n")

    def taken(seconds: float) -> float:
        monkeypatch.setattr(migrate, "LOOK_SECONDS", seconds)
        began = time.thread_time()
        migrate.refuse_damaged(url)
        return time.thread_time() - began

    whole, first = taken(600.0), min(taken(FIRST_LOOK) for _ in range(20))
    assert first < whole / 2
    migrate.upgrade(url)  # as if the look had found nothing
    assert migrate.current(url) == migrate.head()


def test_damage_that_is_found_in_time_refuses_the_file(tmp_path: Path) -> None:
    path = tmp_path / "flipped.db"
    migrate.upgrade(f"sqlite:///{path}")
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)
    with pytest.raises(Damaged, match=r"flipped\.db is damaged"):
        migrate.refuse_damaged(f"sqlite:///{path}")


def test_check_calls_a_file_with_a_damaged_page_damaged(tmp_path: Path) -> None:
    url, path = filled(tmp_path)
    assert migrate.check(url) == []
    pages = bytearray(path.read_bytes())
    pages[20 * 4096 : 40 * 4096] = bytes(20 * 4096)
    path.write_bytes(pages)
    problems = migrate.check(url)
    assert 0 < len(problems) <= 11
    assert all(f"{path} is damaged" in problem for problem in problems)


@pytest.mark.parametrize("bytes_", [b"no database at all " * 500, b"SQLite format 3\0" + b"\xff" * 9000])
def test_check_names_a_file_that_is_no_database(tmp_path: Path, bytes_: bytes) -> None:
    path = tmp_path / "offpolicy.db"
    path.write_bytes(bytes_)
    [problem] = migrate.check(f"sqlite:///{path}")
    assert f"{path} is damaged: file is not a database" in problem
    assert path.read_bytes() == bytes_


def test_a_file_in_use_is_not_migrated(tmp_path: Path) -> None:
    path = tmp_path / "offpolicy.db"
    with WriterLock(path), pytest.raises(ConfigurationError, match="another process"):
        migrate.upgrade(f"sqlite:///{path}")


def test_an_upgrade_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'offpolicy.db'}"
    database = Database(parse_url(url))
    with database.writing() as connection:
        connection.execute(text("CREATE TABLE metrics (other INTEGER)"))
    with pytest.raises(Unavailable, match="metrics already exists"):
        migrate.upgrade(url)
    with database.writing() as connection:
        names = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'")).scalars().all()
    database.close()
    assert names == ["metrics"]


def test_the_template_database_is_not_shared(postgres_database: Callable[[], str]) -> None:
    assert postgres_database() != postgres_database()


def test_blocks_of_an_older_program_go_thin_by_the_age_of_their_steps(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "KEPT", 1)
    with closing(Store.open(database_url, lambda: 1000.0)) as store:
        store.ingest([make_record(step, received_at=1000.0 + step) for step in range(101)])
    with closing(Store.open(database_url, lambda: 5000.0)) as store:
        assert store.upkeep.tidy(60.0, 10) == 201
    downgrade(database_url, "0006")

    migrate.upgrade(database_url)

    assert migrate.check(database_url) == []
    for now, thinned in ((1158.0, 0), (1161.0, 100)):
        with closing(Store.open(database_url, Clock(now))) as store:
            assert store.upkeep.thin(61.0) == thinned
            assert len(store.series("r1", "tokens")["value"]) == 101
