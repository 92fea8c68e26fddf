"""From every revision, killed anywhere: an upgrade ends with all that was stored, or changes nothing and says why."""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from alembic.script import ScriptDirectory
from offpolicy_monitor import resources
from offpolicy_monitor.alerts import RULES
from offpolicy_monitor.cli import main
from offpolicy_monitor.errors import ConfigurationError, Unavailable
from offpolicy_monitor.server.judge import RulesJudge
from offpolicy_monitor.store import Receipt, Store, migrate
from sqlalchemy import create_engine, inspect, make_url, text

from tests.fixtures.forks import ended
from tests.fixtures.revisions import downgrade
from tests.fixtures.shards import make_record
from tests.fixtures.stores import Place
from tests.store.spoilt import cut, flipped, newer

UPGRADER: Final = "import sys; from tests.store.upgrader import main; main(sys.argv[1], int(sys.argv[2]))"
REVISIONS: Final = sorted(script.revision for script in ScriptDirectory(resources.path("migrations")).walk_revisions())
#: The first one with alerts.
ALERTS: Final = "0003"
#: Kills in each migration, before statements chosen by a generator that begins the same each time.
TRIALS: Final = 1
#: A statement that never comes: the kill is before the commit.
AT_COMMIT: Final = 1_000_000
Contents = Mapping[str, Sequence[str]]


def fill(url: str) -> None:
    """Runs with everything that a migration moves: steps of one and of two shards, an open one, attempts, alerts."""
    with closing(Store.open(url, lambda: 1000.0, RulesJudge())) as store:
        store.ingest([make_record(step, shard, 2) for step in range(6) for shard in range(2)])
        store.ingest([make_record(step, tokens=100 + step, policy_version=step) for step in range(6, 9)])
        store.ingest([make_record(4, attempt=1), make_record(9, 0, 2, attempt=1), make_record(0, run="r2")])
        store.update_run("r1", overrides={RULES[0].name: {"warning": 1e-9}})


def answers(url: str, judged: bool) -> Any:
    """What a store says of steps and their histories, where they were `judged` of alerts too: it is to stay."""
    with closing(Store.open(url, lambda: 1000.0)) as store:
        runs = [run["run"] for run in store.runs().rows]
        steps = {run: [told(row, judged) for row in store.steps(run, limit=1000).rows] for run in runs}
        series = {run: [store.series(run, name) for name in ("tokens", "gaps.mismatch.k3")] for run in runs}
        duplicates = [
            isinstance(answer, Receipt) and answer.duplicate
            for answer in store.ingest([make_record(step, shard, 2) for step in range(3) for shard in range(2)])
        ]
    return steps, series, duplicates


def told(row: Mapping[str, Any], judged: bool) -> Mapping[str, Any]:
    return {name: value for name, value in row.items() if judged or name not in ("verdict", "alerts")}


def contents(url: str) -> Contents:
    """Every row of every table, with the names of its columns."""
    engine = create_engine(url)
    with engine.connect() as connection:
        found = {
            name: sorted(map(repr, connection.execute(text(f"SELECT * FROM {name}")).mappings()))
            for name in inspect(connection).get_table_names()
        }
    engine.dispose()
    return found


@pytest.fixture(scope="module")
def filled(place: Place) -> str:
    """A database at the newest revision."""
    url = place.new()
    migrate.upgrade(url)
    fill(url)
    return url


@pytest.fixture(scope="module")
def oldest(place: Place, filled: str) -> str:
    """The same at the first one."""
    url = place.copy(filled)
    downgrade(url, REVISIONS[0])
    return url


def test_from_every_revision_all_that_was_stored_is_answered(place: Place, filled: str) -> None:
    url = place.copy(filled)
    expected = {judged: answers(url, judged) for judged in (True, False)}
    assert expected[True][2] == [True] * 6
    for revision in reversed(REVISIONS):
        downgrade(url, revision)
        assert migrate.current(url) == revision
        assert migrate.upgrade(url) == REVISIONS[-1]
        judged = revision >= ALERTS
        assert answers(url, judged) == expected[judged], revision
    assert migrate.check(url) == []


def test_an_upgrade_killed_in_any_migration_has_changed_nothing_and_completes_when_it_is_run_again(
    place: Place, oldest: str
) -> None:
    before, source = contents(oldest), random.Random(15)
    whole, url = place.copy(oldest), place.copy(oldest)
    status, said = ended(["-c", UPGRADER, whole, "0"], os.environ)
    assert status == 0, said
    lasts = [int(word) for word in said.split()]
    assert len(lasts) == len(REVISIONS) - 1
    starts = [1, *(last + 1 for last in lasts)]
    chosen = [source.randint(*ends) for ends in zip(starts, lasts, strict=False) for _ in range(TRIALS)]
    for number in (*chosen, AT_COMMIT):
        assert ended(["-c", UPGRADER, url, str(number)], os.environ) == (-9, "")
        assert contents(url) == before, number
    assert migrate.upgrade(url) == REVISIONS[-1]
    assert contents(url) == contents(whole)
    assert migrate.check(url) == []


@contextmanager
def locking(url: str) -> Iterator[None]:
    """Inside, another session holds what an upgrade needs."""
    engine = create_engine(url)
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.execute(text("LOCK TABLE runs IN ACCESS SHARE MODE"))
        yield
        connection.rollback()
    engine.dispose()


def test_an_upgrade_waits_for_the_locks_of_others_only_so_long_and_leaves_nothing_half_done(
    place: Place, oldest: str
) -> None:
    url = place.copy(oldest)
    before = contents(url)
    with locking(url):
        began = time.monotonic()
        with pytest.raises(Unavailable, match="locked by another program or session, so nothing was changed"):
            migrate.upgrade(url, lock_seconds=0.3)
        assert 0.3 <= time.monotonic() - began < 5
    assert contents(url) == before
    with locking(url):
        upgraded = threading.Thread(target=migrate.upgrade, args=(url,))
        upgraded.start()
        upgraded.join(0.3)
        assert upgraded.is_alive()
    upgraded.join(60)
    assert migrate.check(url) == []


SPOILT: list[tuple[Callable[[Path], object], str]] = [
    (flipped, "is damaged: "),
    (cut, "is damaged: "),
    (lambda file: file.write_bytes(b"no database " * 999), "is damaged: file is not a database"),
    (lambda file: file.write_bytes(b""), "is empty, and no database is: restore a backup"),
    (newer, "revision 9999, which this version does not know: it was made by a newer one, so install that"),
]
COMMANDS = (["db", "upgrade"], ["serve", "--port", "0"])


def test_a_file_that_is_spoilt_or_newer_is_refused_by_upgrade_and_by_serve_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Place(tmp_path, None).new()
    migrate.upgrade(whole)
    fill(whole)
    content = Path(make_url(whole).database or "").read_bytes()
    for spoil, reason in SPOILT:
        file = tmp_path / "spoilt.db"
        file.write_bytes(content)
        spoil(file)
        spoilt = file.read_bytes()
        without = [["serve", "--no-migrate", "--port", "0"]] if spoil is flipped else []
        for command in (*COMMANDS, *without):
            assert main([*command, "--database-url", f"sqlite:///{file}"]) == 3, command
            said = capsys.readouterr().err
            assert said.startswith("offpolicy-monitor: ") and reason in said, said
            assert "restore a backup" in said or "install that" in said
            assert file.read_bytes() == spoilt
        for suffix in ("", "-wal", "-shm"):
            Path(f"{file}{suffix}").unlink(missing_ok=True)


def test_a_start_that_was_killed_before_it_made_anything_is_told_from_a_database_that_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "offpolicy.db"
    file.touch()
    with pytest.raises(ConfigurationError, match="remove it to begin anew"):
        migrate.upgrade(f"sqlite:///{file}")
    assert file.stat().st_size == 0
    file.unlink()
    assert migrate.upgrade(f"sqlite:///{file}") == migrate.head()
