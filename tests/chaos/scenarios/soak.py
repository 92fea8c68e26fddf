"""Everything at random, for long: what the service holds is the same at the end as at the beginning.

`SOAK` is how many seconds (3600; 24 in a quick run).
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Final

from sqlalchemy import NullPool, create_engine, text

from tests.chaos.crowd import KEY
from tests.chaos.load import Load
from tests.chaos.scenario import POSTGRES, SQLITE, Scenario
from tests.chaos.scenarios.crowd import crowd, tell
from tests.chaos.stage import PROGRAM, Stage
from tests.chaos.watch import BOUNDS, Watch
from tests.fixtures.service import COMMAND

#: The length, where it is chosen.
SOAK: Final = int(os.environ.get("SOAK", "0"))
#: Connections of every kind that stay all the while, and how long each client waits between two shards, seconds.
CONNECTIONS, PAUSE = 30, 0.3
#: How many faults there are, and the shortest time between two. In a sixth of them, all of the first third, the service
#: ends: the last of its lives is long enough to show whether it is flat.
FAULTS, LEAST_PAUSE, ENDS_IN, ENDS_EVERY = 60, 2.0, 1 / 3, 3
#: Seconds from which on the caches fill meanwhile. In less, so many shards fill them before, each client pausing for so
#: long, within so many seconds.
LONG, FILLING, QUICKLY, FILLED_WITHIN = 300, 600, 0.02, 90.0
#: Holds SQLite's lock for some seconds: FILE SECONDS.
HOLDER: Final = """
import sqlite3, sys, time
with sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None) as connection:
    connection.execute("BEGIN IMMEDIATE")
    time.sleep(float(sys.argv[2]))
    connection.execute("ROLLBACK")
"""
#: Seconds that a service which leaks has for its shards.
LEAKING_AT_LEAST, LEAKING_AT_MOST = 12.0, 120.0
#: The program of a service that leaks.
LEAKING: Final = (sys.executable, "-m", "tests.chaos.leak")


class Faults:
    """What can happen to a service; each is over when its function returns."""

    def __init__(self, stage: Stage, watch: Watch, load: Load) -> None:
        self._stage, self._watch, self._load, self._random = stage, watch, load, Random(60)
        self._is_long = stage.times >= LONG
        database = [self._backends_ended, self._frozen] if stage.outcome.database == POSTGRES else [self._locked]
        self._kinds: list[Callable[[], None]] = [*database, self._stopped_for_a_while, self._nothing]

    def happen(self, seconds: float) -> Iterator[str]:
        """One after the other, for so long; of the first, some end the service."""
        began, pause, number = time.monotonic(), max(LEAST_PAUSE, seconds / FAULTS), 0
        while (passed := time.monotonic() - began + pause) < seconds:
            time.sleep(pause)
            number += 1
            ends = number % ENDS_EVERY == 0 and passed < seconds * ENDS_IN and self._is_long
            fault = self._ended if ends else self._random.choice(self._kinds)
            fault()
            yield fault.__name__.strip("_")

    def begin(self) -> None:
        """Look at the service; where the time is short it ends once before, and its caches are filled."""
        if not self._is_long:
            self._ended(looked_at=False)
            self._load.pause = QUICKLY
            self._stage.acknowledged_meanwhile(FILLING, FILLED_WITHIN)
            self._load.pause = PAUSE
        self._look()

    def _ended(self, looked_at: bool = True) -> None:
        """Killed or told to end, and started again."""
        (self._stage.kill if self._random.random() < 0.5 else self._stage.end)()
        with self._stage.recovering():
            self._stage.start(PROGRAM)
            if looked_at:
                self._look()

    def _look(self) -> None:
        assert self._stage.process is not None
        self._watch.follow(self._stage.process.pid)

    def _stopped_for_a_while(self) -> None:
        """The machine has no time for it."""
        assert self._stage.process is not None
        self._stage.process.send_signal(signal.SIGSTOP)
        time.sleep(self._random.uniform(0.5, 2))
        self._stage.process.send_signal(signal.SIGCONT)

    def _locked(self) -> None:
        """Another process holds SQLite's lock."""
        file = self._stage.url.removeprefix("sqlite:///")
        subprocess.run([sys.executable, "-c", HOLDER, file, str(self._random.uniform(0.5, 6))], check=False)

    def _backends_ended(self) -> None:
        """PostgreSQL ends all of its connections, as when it is started anew."""
        engine = create_engine(self._stage.url, poolclass=NullPool)
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        with engine.connect() as connection:
            connection.execute(text(f"{query} AND pid <> pg_backend_pid()"))
        engine.dispose()

    def _frozen(self) -> None:
        """PostgreSQL answers nothing for a while."""
        with self._stage.cluster.frozen():
            time.sleep(self._random.uniform(0.5, 6))

    def _nothing(self) -> None:
        """A quiet time."""


@contextmanager
def _watched(stage: Stage, settling: float) -> Iterator[Watch]:
    watch = Watch(settling=settling)
    with watch.watching():
        yield watch


def soak(stage: Stage) -> None:
    """Faults for so many seconds."""
    with _watched(stage, settling=stage.times / 4) as watch:
        stage.ledger.sent.add(KEY)
        stage.start(PROGRAM if stage.times >= LONG else COMMAND)
        load = Load(stage.port, stage.ledger, pause=PAUSE, ahead=4)
        faults = Faults(stage, watch, load)
        with load.running(), crowd(stage.port, CONNECTIONS):
            faults.begin()
            for number, fault in enumerate(faults.happen(stage.times), 1):
                stage.outcome.trials = number
                shown = watch.lives.get(stage.process.pid if stage.process else 0, [])[-1:]
                told = f"{number}: {fault}, {len(stage.ledger.acknowledged)} acknowledged, {shown}"
                print(f"  {told}", file=sys.stderr, flush=True)
    tell(stage, watch)
    for sentence in watch.not_flat():
        stage.promise(False, sentence)


def leak(stage: Stage) -> None:
    """A service that leaks with each of so many shards is found to."""
    with _watched(stage, settling=4) as watch:
        stage.start(LEAKING)
        assert stage.process is not None
        watch.follow(stage.process.pid)
        with stage.load(pause=0.05):
            time.sleep(LEAKING_AT_LEAST)
            stage.acknowledged_meanwhile(stage.times - len(stage.ledger.acknowledged), LEAKING_AT_MOST)
    stage.outcome.trials = 1
    found = {name for name, by in watch.grown().items() if by > BOUNDS[name]}
    stage.promise(found == set(BOUNDS), f"of memory, descriptors and threads that leak, only {found} were found")


SCENARIOS = (
    Scenario(
        "soak with random faults",
        soak,
        full=SOAK or 3600,
        quick=SOAK or 24,
        limit=(SOAK or 3600) + 1200,
        quick_databases=() if SOAK else (SQLITE,),
    ),
    Scenario("soak of a service that leaks", leak, databases=(SQLITE,), full=300, quick=200),
)
