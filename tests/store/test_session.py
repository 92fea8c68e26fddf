"""What URLs mean, who may write, and what a failing database looks like from outside."""

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path

import pytest
from offpolicy_monitor.errors import ConfigurationError, Unavailable
from offpolicy_monitor.store import Receipt, Store, migrate
from offpolicy_monitor.store.failures import translated
from offpolicy_monitor.store.rows.statement import Statement
from offpolicy_monitor.store.rows.tables import runs
from offpolicy_monitor.store.session import Database, parse_url, sqlite_file
from sqlalchemy import bindparam, event, func, select, text, update

from tests.fixtures.faults import FailingDisk
from tests.fixtures.forks import ended
from tests.fixtures.shards import make_record
from tests.fixtures.stores import Clock


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("postgres://u@h/d", "postgresql+psycopg"),
        ("postgresql://u@h/d", "postgresql+psycopg"),
        ("postgresql+psycopg://u@h/d", "postgresql+psycopg"),
        ("sqlite:///a.db", "sqlite"),
    ],
)
def test_usual_spellings_of_a_url_mean_the_driver_that_is_used(url: str, driver: str) -> None:
    assert parse_url(url).drivername == driver


@pytest.mark.parametrize("url", ["", "a.db", "mysql://h/d", "sqlite+aiosqlite:///a.db"])
def test_a_url_that_cannot_be_used_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_url(url)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"])
def test_a_database_in_memory_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="not durable"):
        sqlite_file(parse_url(url))


def test_a_sqlite_commit_is_synced_and_the_folder_is_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "offpolicy.db"
    database = Database(parse_url(f"sqlite:///{path}"))
    with database.reading() as connection:
        pragmas = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]
    database.close()
    assert pragmas == ["wal", 2, 1, 5000]


def test_a_postgres_commit_is_synced(postgres_url: str) -> None:
    database = Database(parse_url(postgres_url))
    with database.writing() as connection:
        assert connection.execute(text("SHOW synchronous_commit")).scalar_one() == "on"
    database.close()


def test_a_second_process_may_not_write_the_same_sqlite_file(sqlite_url: str) -> None:
    program = (
        "import sys\n"
        "from offpolicy_monitor.errors import ConfigurationError\n"
        "from offpolicy_monitor.store import Store\n"
        "try: Store.open(sys.argv[1])\n"
        "except ConfigurationError as error: print(error)"
    )
    with closing(Store.open(sqlite_url)):
        status, said = ended(["-c", program, sqlite_url], os.environ)
    assert status == 0, said
    assert f"(pid {os.getpid()})" in said
    assert "use PostgreSQL" in said
    Store.open(sqlite_url).close()


def test_a_hard_link_to_a_file_in_use_may_not_be_written(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "linked.db").hardlink_to(tmp_path / "offpolicy.db")
    other = f"sqlite:///{tmp_path / 'linked.db'}"
    program = (
        "import sys\n"
        "from offpolicy_monitor.errors import ConfigurationError\n"
        "from offpolicy_monitor.store import Store, migrate\n"
        "for write in (Store.open, migrate.upgrade):\n"
        "    try: write(sys.argv[1])\n"
        "    except ConfigurationError as error: print(error)"
    )
    with closing(Store.open(sqlite_url)) as store:
        with pytest.raises(ConfigurationError, match="hard link"):
            Store.open(other)
        status, said = ended(["-c", program, other], os.environ)
        assert status == 0, said
        assert said.count("linked.db is being written under another name") == 2
        store.ingest([make_record()])
    with closing(Store.open(other)) as store:
        assert store.run("r1")["last_step"] == 0


def test_a_file_whose_lock_file_was_removed_is_still_one_writers(sqlite_url: str, tmp_path: Path) -> None:
    program = "import sys\nfrom offpolicy_monitor.store import Store\nStore.open(sys.argv[1])"
    with closing(Store.open(sqlite_url)):
        (tmp_path / "offpolicy.db.lock").unlink()
        status, said = ended(["-c", program, sqlite_url], os.environ)
    assert status == 1
    assert "ConfigurationError" in said


def test_readers_do_not_hold_writers_up_nor_writers_readers(database_url: str, store: Store) -> None:
    store.ingest([make_record()])
    database = Database(parse_url(database_url))
    with database.reading() as connection:
        before = connection.execute(text("SELECT count(*) FROM shards")).scalar_one()
        store.ingest([make_record(1)])
        assert connection.execute(text("SELECT count(*) FROM shards")).scalar_one() == before == 1
    with database.writing() as connection:
        connection.execute(text("UPDATE runs SET profile = 'moe'"))
        assert store.run("r1")["profile"] == "dense_bf16"
    database.close()
    assert store.run("r1")["profile"] == "moe"


def test_a_reader_with_a_new_connection_does_not_wait_for_a_writer(sqlite_url: str) -> None:
    with closing(Database(parse_url(sqlite_url))) as database, database.writing() as connection:
        connection.execute(text("UPDATE runs SET profile = 'moe'"))
        began = time.monotonic()
        with database.reading() as other:
            assert other.execute(text("SELECT count(*) FROM runs")).scalar_one() == 0
        assert time.monotonic() - began < 2


def test_a_file_that_was_made_here_can_shrink_by_pieces(tmp_path: Path) -> None:
    with (
        closing(Database(parse_url(f"sqlite:///{tmp_path / 'new.db'}"))) as database,
        database.writing() as connection,
    ):
        assert connection.execute(text("PRAGMA auto_vacuum")).scalar_one() == 2


def test_the_next_write_on_a_file_is_by_the_same_connection(sqlite_url: str) -> None:
    with closing(Database(parse_url(sqlite_url))) as database:
        with database.writing() as connection:
            first = connection.connection.driver_connection
        with pytest.raises(ValueError, match="mine"), database.writing() as connection:
            assert connection.connection.driver_connection is first
            raise ValueError("mine")
        with database.writing() as connection:
            assert connection.execute(text("SELECT count(*) FROM runs")).scalar_one() == 0


@pytest.mark.parametrize("by_both", [False, True])
def test_what_the_driver_and_sqlalchemy_run_is_one_transaction(database_url: str, store: Store, by_both: bool) -> None:
    store.ingest([make_record()])
    profile = Statement(select(runs.c.profile))
    change = Statement(update(runs).values(profile=bindparam("profile", required=True)))
    labels = {"a": "b"} if by_both else {}
    with closing(Database(parse_url(database_url))) as database:
        for error, kept in ((ValueError, ("dense_bf16", {})), (None, ("moe", labels))):
            with suppress(ValueError), database.writing() as connection:
                change.run(connection, {"profile": "moe"})
                if by_both:
                    connection.execute(update(runs).values(labels=labels))
                assert profile.rows(connection) == [("moe",)]
                if error is not None:
                    raise error
            with database.reading() as connection:
                assert tuple(connection.execute(select(runs.c.profile, runs.c.labels)).one()) == kept


def test_a_server_that_goes_before_the_commit_is_503_and_the_next_write_finds_another(postgres_url: str) -> None:
    with closing(Database(parse_url(postgres_url))) as database:
        with pytest.raises(Unavailable), database.writing() as connection:
            process = Statement(select(func.pg_backend_pid())).rows(connection)[0][0]
            with database.reading() as other:
                other.execute(select(func.pg_terminate_backend(process)))
        with database.writing() as connection:
            assert connection.execute(text("SELECT count(*) FROM runs")).scalar_one() == 0


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_acknowledged_while_a_file_of_the_database_is_not_the_one_that_is_open(
    sqlite_url: str, tmp_path: Path, suffix: str, replaced: bool
) -> None:
    file, away = tmp_path / f"offpolicy.db{suffix}", tmp_path / "away"
    with closing(Store.open(sqlite_url)) as store:
        store.ingest([make_record()])
        file.rename(away)
        if replaced:
            shutil.copy(away, file)
        said = "was replaced by another file" if replaced else "was deleted"
        with pytest.raises(Unavailable, match=said):
            store.ingest([make_record(1)])
        log = (away if suffix == "-wal" else tmp_path / "offpolicy.db-wal").stat().st_size
        for step in (2, 3):
            with pytest.raises(Unavailable, match=said):
                store.ingest([make_record(step)])
        assert (away if suffix == "-wal" else tmp_path / "offpolicy.db-wal").stat().st_size == log
        away.replace(file)
        answers = [store.ingest([make_record(step)])[0] for step in (2, 3, 4)]
        assert [isinstance(answer, Receipt) and not answer.duplicate for answer in answers] == [True] * 3
        assert {0, 2, 3, 4} <= {row["step"] for row in store.steps("r1").rows}


def test_a_full_disk_is_507_and_stores_nothing(sqlite_url: str, clock: Clock) -> None:
    database = Database(parse_url(sqlite_url))
    event.listen(database.engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 60"))
    store = Store(database, None, clock)
    stored = 0
    with pytest.raises(Unavailable) as caught:
        while stored < 1000:
            store.ingest([make_record(stored)])
            stored += 1
    assert (caught.value.status, caught.value.kind) == (507, "storage-full")
    assert 0 < len(store.steps("r1", limit=1000).rows) == stored
    store.close()


def test_postgres_out_of_disk_is_507(postgres_url: str) -> None:
    database = Database(parse_url(postgres_url))
    statement = text("DO $$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = '53100'; END $$")
    with pytest.raises(Unavailable) as caught, database.writing() as connection:
        connection.execute(statement)
    database.close()
    assert caught.value.status == 507


def test_a_locked_sqlite_file_is_503_until_it_is_free(sqlite_url: str, clock: Clock) -> None:
    database = Database(parse_url(sqlite_url))
    event.listen(database.engine, "connect", lambda connection, _: connection.execute("PRAGMA busy_timeout = 10"))
    store = Store(database, None, clock)
    path = sqlite_file(parse_url(sqlite_url))
    assert path is not None
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="locked") as caught:
            store.ingest([make_record()])
    assert (caught.value.status, caught.value.kind, caught.value.retry_after) == (503, "store-unavailable", 1)
    assert str(path) in caught.value.detail
    [receipt] = store.ingest([make_record()])
    assert not isinstance(receipt, Exception)
    store.close()


def test_a_postgres_that_is_away_is_503(clock: Clock) -> None:
    with closing(Store.open("postgresql://nobody@127.0.0.1:1/none", clock)) as store:
        with pytest.raises(Unavailable) as caught:
            store.ingest([make_record()])
        assert caught.value.status == 503
        for ask in (store.schema_is_current, store.ping, store.try_writing):
            with pytest.raises(Unavailable):
                ask()


def test_a_store_outlives_connections_that_the_server_dropped(postgres_url: str, clock: Clock) -> None:
    with closing(Store.open(postgres_url, clock)) as store:
        store.ingest([make_record()])
        database = Database(parse_url(postgres_url))
        others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        with database.reading() as connection:
            connection.execute(text(f"{others} AND pid <> pg_backend_pid()"))
        database.close()
        [receipt] = store.ingest([make_record(1)])
        assert not isinstance(receipt, Exception)


def test_the_schema_is_current_only_at_the_newest_revision(store: Store, database_url: str) -> None:
    store.ping()
    assert store.schema_is_current() is True
    database = Database(parse_url(database_url))
    with database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'older'"))
    database.close()
    assert store.schema_is_current() is False


def test_a_defect_of_ours_is_not_dressed_up_as_a_failing_database(postgres_url: str) -> None:
    database = Database(parse_url(postgres_url))
    with pytest.raises(Exception, match="nowhere") as caught, database.writing() as connection:
        connection.execute(text("SELECT * FROM nowhere"))
    database.close()
    assert not isinstance(caught.value, Unavailable)


@pytest.mark.parametrize(
    ("number", "status", "kind"),
    [
        (errno.ENOSPC, 507, "storage-full"),
        (errno.EDQUOT, 507, "storage-full"),
        (errno.EIO, 503, "store-unavailable"),
    ],
)
def test_errors_of_the_file_system_are_unavailable(number: int, status: int, kind: str) -> None:
    with pytest.raises(Unavailable) as caught, translated():
        raise OSError(number, os.strerror(number))
    assert (caught.value.status, caught.value.kind) == (status, kind)


REFUSALS = {errno.ENOSPC: "507 storage-full", errno.EDQUOT: "507 storage-full", errno.EIO: "503 store-unavailable"}


@pytest.fixture(scope="module")
def refused_writes(
    tmp_path_factory: pytest.TempPathFactory, migrated_file: Path, failing_writes: Path
) -> Mapping[int, tuple[Path, str, str]]:
    """By number of the error what a process says whose disk refuses a write with it: the file, and its two lines."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from offpolicy_monitor.errors import Unavailable\n"
        "from offpolicy_monitor.store import Store\n"
        "from tests.fixtures.shards import make_record\n"
        "switch, *numbers = sys.argv[1:]\n"
        "for number in numbers:\n"
        "    store = Store.open(f'sqlite:///{number}.db')\n"
        "    store.ingest([make_record()])\n"
        "    Path(switch).write_text(number)\n"
        "    try: store.ingest([make_record(1)])\n"
        "    except Unavailable as error: print(int(error.status), error.kind, error.detail)\n"
        "    Path(switch).unlink()\n"
        "    store.ingest([make_record(1)])\n"
        "    print(len(store.steps('r1').rows))\n"
        "    store.close()"
    )
    folder = tmp_path_factory.mktemp("refused")
    disk = FailingDisk(failing_writes, folder)
    files = {number: folder / f"{number}.db" for number in REFUSALS}
    for file in files.values():
        shutil.copy(migrated_file, file)
    ended = subprocess.run(
        [sys.executable, "-c", program, disk.environment["FAILING_WHILE"], *map(str, files)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **disk.environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = iter(ended.stdout.splitlines())
    return {number: (file, next(lines), next(lines)) for number, file in files.items()}


@pytest.mark.parametrize(("number", "answer"), REFUSALS.items())
def test_a_write_that_the_disk_refuses_says_whether_there_is_no_room(
    refused_writes: Mapping[int, tuple[Path, str, str]], number: int, answer: str
) -> None:
    file, first, stored = refused_writes[number]
    assert first.startswith(answer)
    assert str(file) in first
    assert stored == "2"


def test_postgres_over_its_quota_is_507(postgres_url: str) -> None:
    database = Database(parse_url(postgres_url))
    reason = os.strerror(errno.EDQUOT)
    statement = text(f"DO $$ BEGIN RAISE EXCEPTION 'could not extend file: {reason}' USING ERRCODE = 'XX000'; END $$")
    with pytest.raises(Unavailable) as caught, database.writing() as connection:
        connection.execute(statement)
    database.close()
    assert caught.value.status == 507


def test_a_store_can_be_opened_again_after_closing(open_store: Callable[[], Store]) -> None:
    open_store().close()
    open_store().ping()


@pytest.mark.parametrize("opened", [Store.open, lambda url: Database(parse_url(url)), migrate.upgrade])
def test_a_path_that_can_hold_no_file_is_a_configuration_error(opened: Callable[[str], object], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    url = f"sqlite:///{tmp_path / 'file' / 'folder' / 'x.db'}"
    with pytest.raises(ConfigurationError, match=r"x\.db"):
        opened(url)


def test_a_lock_file_that_cannot_be_made_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "x.db.lock").mkdir()
    with pytest.raises(ConfigurationError, match="Is a directory"):
        Store.open(f"sqlite:///{tmp_path / 'x.db'}")


def test_a_connection_that_is_used_while_the_others_are_closed_is_closed_when_it_comes_back(database_url: str) -> None:
    database = Database(parse_url(database_url))
    with database.reading() as connection:
        connection.execute(text("SELECT 1"))
        used = connection.connection.dbapi_connection
        database.close()
    with pytest.raises(Exception, match="closed"):
        used.execute("SELECT 1")  # pyrefly: ignore[missing-attribute]
