"""An upgrade of a large database that is in use: the program of the release before stores all the while, and goes on
beside the new one, which leads, until there is nothing left to be filled.

Both are real processes. How long each post takes is told for each part, and a post that is not answered 200 fails it.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from offpolicy_monitor.store import migrate
from offpolicy_monitor.store.session import Database, parse_url
from sqlalchemy import text

from tests.benchmarks.batches import Synthetic
from tests.benchmarks.ingest import connected
from tests.benchmarks.large.asked import got, serving
from tests.benchmarks.large.figures import Figure
from tests.benchmarks.large.fill import TOKENS, Run
from tests.benchmarks.servers import Served
from tests.fixtures.revisions import downgrade
from tests.fixtures.service import free_port, wait_until_ready

BEFORE = "0014"
#: Seconds of posts before anything is changed; between two looks how much is filled; without a change, when it is over.
QUIET, LOOK, OVER = 10.0, 1.0, 25.0
#: Seconds in which somebody has taken a lead that is free.
TAKEN: Final = 3.0


class Posting:
    """One post after another, until `end`: (when it began, milliseconds) of each."""

    def __init__(self, service: Served, run: Run, first: int) -> None:
        self.taken: list[tuple[float, float]] = []
        self._ended, self._source = threading.Event(), Synthetic(TOKENS)
        self._thread = threading.Thread(target=self._post, args=(service, run, first), daemon=True)
        self._failure: BaseException | None = None
        self._thread.start()

    def end(self) -> None:
        """The last one; raises what a post was refused with."""
        self._ended.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def between(self, begin: float, end: float) -> Sequence[float]:
        """Milliseconds of the posts of a time, one at least."""
        found = [taken for began, taken in self.taken if begin <= began + taken / 1e3 and began <= end]
        return found or [self.taken[-1][1]]

    def _post(self, service: Served, run: Run, step: int) -> None:
        try:
            with connected(service, f"/v1/runs/{run.name}/batches?detail=none", 1) as load:
                while not self._ended.wait(0.02):
                    began = time.monotonic()
                    self.taken.append((began, 1e3 * load.seconds([self._source.body(step, minibatches=1)])))
                    step += 1
        except BaseException as error:
            self._failure = error


def of_upgrade(url: str, runs: Sequence[Run], folder: Path, older: Path) -> list[Figure]:
    """The database is brought back to the release before, whose sources are in `older`, and then upgraded in use."""
    downgrade(url, BEFORE)
    with of_before(url, folder, older) as before:
        posting = Posting(before, runs[1], runs[1].steps + 5_000)
        time.sleep(QUIET)
        began = time.monotonic()
        migrate.upgrade(url)
        upgraded = time.monotonic()
        with serving(url, folder) as now:
            beside = Posting(now, runs[2], runs[2].steps + 5_000)
            led = hand_over(url, now)
            spans, filled = grown(url)
            beside.end()
        posting.end()
    parts = {
        "a post to the older program, before": posting.between(0.0, began),
        "the same while the schema is changed": posting.between(began, upgraded),
        "the same while the new table is filled": posting.between(led, filled),
        "a post to the new program meanwhile": beside.between(led, filled),
    }
    told = [Figure(f"{what}: median, of {len(taken):,}", max(taken), taken) for what, taken in parts.items()]
    changed, filling = 1e3 * (upgraded - began), 1e3 * (filled - led)
    return [
        Figure("changing the schema", changed, [changed]),
        Figure(f"filling the new table beside it, {spans:,} spans", filling, [filling]),
        *told,
    ]


def hand_over(url: str, to: Served) -> float:
    """Take the lead from whoever has it until this process has it; answers when it had."""
    holder = text("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted")
    while b"\noffpolicy_leader 1" not in got(to, "/metrics"):
        database = Database(parse_url(url))
        with database.writing() as connection:
            connection.execute(holder)
        database.close()
        time.sleep(TAKEN)
    return time.monotonic()


def grown(url: str) -> tuple[int, float]:
    """How many spans there are once no more are made, and when the last one was."""
    spans, changed = -1, time.monotonic()
    while time.monotonic() - changed < OVER:
        time.sleep(LOOK)
        database = Database(parse_url(url))
        with database.reading() as connection:
            there = connection.execute(text("SELECT count(*) FROM spans WHERE name = ''")).scalar_one()
        database.close()
        if there != spans:
            spans, changed = there, time.monotonic()
    return spans, changed


@contextmanager
def of_before(url: str, folder: Path, older: Path) -> Iterator[Served]:
    """The program of the release before, on a database of its own schema."""
    port, log = free_port(), folder / "before.log"
    variables = {"OFFPOLICY_DATABASE_URL": url, "OFFPOLICY_DEVICE": "cpu", "OFFPOLICY_PORT": str(port)}
    environment = os.environ | variables | {"PYTHONPATH": str(older / "service")}
    command = [sys.executable, "-m", "offpolicy_monitor.cli", "serve"]
    with log.open("wb") as lines:
        process = subprocess.Popen(command, env=environment, stdout=lines, stderr=lines, start_new_session=True)
    try:
        wait_until_ready(f"http://127.0.0.1:{port}", process)
        yield Served(port, process, log)
    finally:
        process.terminate()
        process.wait(30)
