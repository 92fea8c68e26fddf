"""Plays one scenario on one database: a stage, the function, the end of the service, the audit."""

import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from tests.chaos.load import PAUSE
from tests.chaos.scenario import POSTGRES, Outcome, Scenario
from tests.chaos.stage import SkippedError, Stage
from tests.fixtures.memory import MEMORY
from tests.fixtures.postgres import Cluster
from tests.fixtures.tools import find_tool

#: How the folder of a process begins, before its id.
FOLDER: Final = "chaos-"
#: Seconds from post to post of a client in a quick run, whose scenarios share two processors.
QUICK_PAUSE: Final = 0.2


class TooLongError(Exception):
    """A scenario was broken off."""


class Clusters:
    """The PostgreSQL server of this command, made when first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._made = folder, list[Cluster]()

    def get(self) -> Cluster:
        """The server."""
        initdb = find_tool("initdb")
        if initdb is None:
            raise SkippedError("needs initdb: apt-get install postgresql")
        if not self._made:
            self._folder.mkdir()
            self._made.append(Cluster(self._folder, initdb.parent))
            self._made[0].make_template()
        return self._made[0]

    def close(self) -> None:
        """End it."""
        for cluster in self._made:
            cluster.stop()


@contextmanager
def workplace() -> Iterator[Path]:
    """A folder for everything, in memory where the system has one; PostgreSQL's user may look into it.

    Those of processes that were killed are removed.
    """
    base = MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir())
    for left in base.glob(f"{FOLDER}*-*"):
        if not Path("/proc", left.name.split("-")[1]).exists():
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{FOLDER}{os.getpid()}-", dir=base) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def play(scenario: Scenario, database: str, quick: bool, root: Path, clusters: Clusters) -> Outcome:
    """Play it, and audit what is left."""
    outcome, began = Outcome(scenario.name, database, scenario.control), time.monotonic()
    # A short name: the path of a socket has at most 107 characters.
    folder = Path(tempfile.mkdtemp(dir=root))
    folder.chmod(0o755)
    try:
        cluster = clusters.get() if database == POSTGRES else None
        times, pause = (scenario.quick, QUICK_PAUSE) if quick else (scenario.full, PAUSE)
        stage = Stage(folder, outcome, times, cluster, pause)
        with stage.stack, _within(scenario.limit):
            try:
                scenario.play(stage)
            finally:
                stage.end()
            stage.audit()
    except SkippedError as error:
        outcome.skipped = str(error)
    except Exception as error:
        traceback.print_exc()
        log = folder / "service.log"
        print(log.read_text(errors="replace")[-4000:] if log.exists() else "", file=sys.stderr)
        outcome.broken.append(f"{type(error).__name__}: {error}")
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    def broken_off(_number: int, _frame: FrameType | None) -> None:
        raise TooLongError(f"took longer than {seconds:g} s")

    former = signal.signal(signal.SIGALRM, broken_off)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
