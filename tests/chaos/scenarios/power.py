"""Power cuts: the processes die, and of their files nothing is left but what they had synced.

A preloaded library copies each file as it is synced; the copies are what a disk has that loses its cache. On SQLite
that is everything below the database's folder, and the service dies with it. On PostgreSQL it is the write-ahead log,
and the server dies; its tables may keep more than they had synced, since the log says what was committed.
"""

import shutil
import sys
import time
from pathlib import Path
from random import Random

from offpolicy_monitor.store import migrate

from tests.chaos.scenario import POSTGRES, SQLITE, Scenario
from tests.chaos.stage import Stage
from tests.fixtures.faults import SYNCED_ONLY
from tests.fixtures.postgres import Cluster, server_user
from tests.fixtures.service import COMMAND

UNSYNCED = Path(__file__).parents[1] / "unsynced.py"
#: Acknowledgements before each cut, of which a control is to lose some, and seconds after which it comes anyway.
AT_LEAST, UP = 10, 8.0
#: What a server keeps for long when a session does not wait for it.
DURABLE = ("fsync=on", "full_page_writes=on", "wal_writer_delay=10s", "listen_addresses=", "shared_buffers=32MB")


def of_sqlite(stage: Stage, *command: str) -> None:
    """Cut the power under load, and go on with what was synced."""
    live, synced, random = stage.folder / "live", stage.folder / "synced", Random(7)
    live.mkdir()
    synced.mkdir()
    stage.url = f"sqlite:///{live / 'offpolicy.db'}"
    environment = preloading(stage.preloaded(SYNCED_ONLY), live, synced)
    stage.start(command or COMMAND, environment)
    with stage.load(finish=not command):
        for _ in stage.trials():
            time.sleep(random.uniform(1.0, 2.5))
            stage.acknowledged_meanwhile(AT_LEAST, UP)
            stage.kill()
            shutil.rmtree(live)
            shutil.copytree(synced, live)
            with stage.recovering():
                stage.start(command or COMMAND, environment)


def of_postgres(stage: Stage, *command: str) -> None:
    """Cut the server's power under load; the service goes on with what is left."""
    synced, random = stage.folder / "synced", Random(7)
    library = stage.preloaded(SYNCED_ONLY)
    folder = stage.folder / "own"
    folder.mkdir()
    log = folder / "data" / "pg_wal"
    cluster = Cluster(
        folder,
        stage.needs("initdb").parent,
        DURABLE,
        preloading(library, log, synced),
        ["--wal-segsize=1"],
        lambda data: copied(log, synced),
    )
    stage.stack.callback(cluster.stop)
    stage.stack.callback(stage.end)
    stage.url = cluster.url("postgres")
    migrate.upgrade(stage.url)
    stage.start(command or COMMAND, {"CHAOS": "own"} if command else None)
    with stage.load(finish=not command):
        for _ in stage.trials():
            time.sleep(random.uniform(1.0, 2.5))
            stage.acknowledged_meanwhile(AT_LEAST, UP)
            cluster.kill()
            copied(synced, log)
            with stage.recovering():
                cluster.start()


def preloading(library: Path, below: Path, into: Path) -> dict[str, str]:
    """What lets a process keep what it has synced."""
    return {"LD_PRELOAD": str(library), "SYNCED_BELOW": str(below), "SYNCED_INTO": str(into)}


def copied(folder: Path, to: Path) -> None:
    """A folder in the place of another, for PostgreSQL's user."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    if (user := server_user()) is not None:
        for path in (to, *to.rglob("*")):
            shutil.chown(path, user)
    to.chmod(0o700)


def without_syncs(stage: Stage) -> None:
    """As if the service had been told not to sync."""
    of_sqlite(stage, sys.executable, str(UNSYNCED), "PRAGMA synchronous = OFF")


def with_few_syncs(stage: Stage) -> None:
    """As SQLite is set up by many: the log is synced with a checkpoint alone."""
    of_sqlite(stage, sys.executable, str(UNSYNCED), "PRAGMA synchronous = NORMAL")


def without_waiting(stage: Stage) -> None:
    """As if commits did not wait for the log."""
    of_postgres(stage, sys.executable, str(UNSYNCED), "SET synchronous_commit = off")


SCENARIOS = (
    Scenario("power cut", of_sqlite, (SQLITE,), full=8),
    Scenario("power cut", of_postgres, (POSTGRES,), full=8),
    Scenario("power cut, synchronous = OFF", without_syncs, (SQLITE,), control=True),
    Scenario("power cut, synchronous = NORMAL", with_few_syncs, (SQLITE,), control=True),
    Scenario("power cut, synchronous_commit = off", without_waiting, (POSTGRES,), control=True),
)
