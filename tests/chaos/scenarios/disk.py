"""A disk that is full, fails, or is slow, and another program at the same SQLite file: refused in so many words."""

import sqlite3
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from offpolicy_monitor.store import migrate

from tests.chaos.scenario import POSTGRES, SQLITE, Scenario
from tests.chaos.stage import SkippedError, Stage
from tests.fixtures.faults import SOURCE, FailingDisk
from tests.fixtures.postgres import FAST, Cluster
from tests.fixtures.service import COMMAND, clean_environment

FULL, BROKEN, READ_ONLY, SLOW = 28, 5, 30, -300
LASTS = 4.0
#: A server that syncs what it writes.
SYNCING = ("fsync=on", "full_page_writes=on", "listen_addresses=", "shared_buffers=32MB")
#: MiB of a disk that is really full.
ROOM = {SQLITE: 24, POSTGRES: 96}


def failing(number: int, statuses: set[int], stage: Stage) -> None:
    """Every write and sync of the database fails for a while; nothing is stored by halves."""
    disk = FailingDisk(stage.preloaded(SOURCE), stage.folder)
    stage.start(environment=disk.environment)
    with stage.load(), stage.flat():
        for _ in stage.trials():
            before = sum(stage.ledger.answers[status] for status in statuses)
            with disk.failing(number):
                time.sleep(LASTS)
                stage.unready(saying='"reason"')
                stage.alive()
            with stage.recovering():
                pass
            told = sum(stage.ledger.answers[status] for status in statuses)
            stage.promise(told > before, f"nobody was told {sorted(statuses)}")
    stage.answered({200, 503} | statuses)


def slow(stage: Stage) -> None:
    """Each sync takes 0.3 s: everything takes longer, and nothing else happens."""
    disk = FailingDisk(stage.preloaded(SOURCE), stage.folder)
    stage.start(environment=disk.environment)
    with stage.load(), stage.flat():
        for _ in stage.trials():
            with disk.failing(SLOW):
                time.sleep(LASTS)
            with stage.recovering():
                pass
    stage.answered({200})


def of_server(number: int, stage: Stage) -> None:
    """Writes and syncs of PostgreSQL's own files fail for a while, so that it ends, or syncs take longer."""
    folder = stage.folder / "own"
    folder.mkdir()
    disk = FailingDisk(stage.preloaded(SOURCE), folder)
    cluster = own_cluster(stage, folder, SYNCING, disk.environment)
    stage.start()
    with stage.load(), stage.flat():
        for _ in stage.trials():
            time.sleep(1.0)
            with disk.failing(number):
                time.sleep(LASTS)
                stage.alive()
            with stage.recovering():
                cluster.recover()
    stage.answered({200} if number < 0 else {200, 503, 507})
    if number > 0:
        stage.promise(stage.ledger.answers[503] > 0, "nobody was told 503")


def full(stage: Stage) -> None:
    """A small disk of its own is filled to the last byte."""
    disk = small_disk(stage)
    if stage.outcome.database == POSTGRES:
        own_cluster(stage, disk)
    else:
        stage.url = f"sqlite:///{disk / 'offpolicy.db'}"
    stage.start()
    with stage.load(), stage.flat():
        for _ in stage.trials():
            time.sleep(1.0)
            stage.ledger.answers.pop(507, None)
            fill(disk / "filler")
            stage.told(507)
            stage.alive()
            with stage.recovering():
                (disk / "filler").unlink()
    stage.answered({200, 503, 507})


def small_disk(stage: Stage) -> Path:
    """A file system in memory, gone with the stage."""
    disk = stage.folder / "disk"
    disk.mkdir()
    options = f"size={ROOM[stage.outcome.database]}m,mode=755"
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(disk)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise SkippedError(f"may not mount: {made.stderr.strip()}")
    stage.stack.callback(lambda: subprocess.run(["umount", "--lazy", disk], check=False))
    return disk


def own_cluster(
    stage: Stage, folder: Path, options: Sequence[str] = FAST, variables: Mapping[str, str] | None = None
) -> Cluster:
    """A PostgreSQL server in a folder."""
    cluster = Cluster(folder, stage.needs("initdb").parent, options, variables, ["--wal-segsize=1"])
    stage.stack.callback(cluster.stop)
    stage.stack.callback(stage.end)
    stage.url = cluster.url("postgres")
    migrate.upgrade(stage.url)
    return cluster


def fill(file: Path) -> None:
    """Write zeros until the disk takes no more."""
    with file.open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(1 << 12))


def another_writes(stage: Stage) -> None:
    """Another program holds the right to write for longer than the service waits for it."""
    stage.start()
    with stage.load(), stage.flat():
        for _ in stage.trials():
            time.sleep(0.5)
            with closing(sqlite3.connect(stage.folder / "offpolicy.db", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                stage.told(503)
                stage.unready(saying="locked")
                other.execute("COMMIT")
            with stage.recovering():
                pass
    stage.answered({200, 503})


def a_second_service(stage: Stage) -> None:
    """A second service on the file refuses to start, in a sentence; the first goes on."""
    stage.start()
    with stage.load():
        for _ in stage.trials():
            command = [*COMMAND, "serve", "--port", "0"]
            variables = clean_environment() | {"OFFPOLICY_DATABASE_URL": stage.url, "OFFPOLICY_TORCH_COMPILE": "false"}
            second = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=90, check=False)
            refused(stage, second.returncode, second.stdout + second.stderr)
    stage.answered({200})


def refused(stage: Stage, status: int, said: str) -> None:
    """The end of a service that was not to start."""
    stage.promise(status != 0 and "Traceback" not in said, f"it ended with {status}")
    stage.promise("offpolicy.db" in said and "another process" in said, f"it said {said[-300:]}")


SCENARIOS = (
    Scenario("disk full, really", full, full=2),
    Scenario("disk full", partial(failing, FULL, {507}), (SQLITE,), full=4),
    Scenario("disk read-only", partial(failing, READ_ONLY, {503}), (SQLITE,), full=4),
    Scenario("disk with I/O errors", partial(failing, BROKEN, {503}), (SQLITE,), full=4),
    Scenario("disk with I/O errors", partial(of_server, BROKEN), (POSTGRES,), full=3),
    Scenario("slow sync", slow, (SQLITE,), full=4),
    Scenario("slow sync", partial(of_server, SLOW), (POSTGRES,), full=3),
    Scenario("another program writes", another_writes, (SQLITE,), full=2),
    Scenario("a second service on the file", a_second_service, (SQLITE,), full=2),
)
