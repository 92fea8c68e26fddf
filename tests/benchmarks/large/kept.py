"""What looking after a large database takes, by a service that is posted to all the while: an hour's steps that grow
old, a run that goes; and its size by tables."""

import time
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import Store
from offpolicy_monitor.store.rows.tables import UNSETTLED, metadata, runs, steps
from offpolicy_monitor.store.session import Database, parse_url
from offpolicy_monitor.store.write import settle, thin
from sqlalchemy import Connection, func, select, text

from tests.benchmarks.large.asked import serving
from tests.benchmarks.large.figures import Figure
from tests.benchmarks.large.fill import SETTLED, Run
from tests.benchmarks.large.upgraded import Posting

HOUR: Final = 3600.0
#: Seconds of posts before anything is done; between two looks at what is left; without anything left, when it is over.
QUIET, LOOK, OVER = 5.0, 0.25, 5.0
#: Seconds after which it is given up.
LONGEST: Final = 900.0


def of_upkeep(url: str, folder: Path, run: Run) -> list[Figure]:
    """The steps that grow old within an hour are made small and thin."""
    ages = {name: Settings.model_fields[name].default - HOUR for name in ("settle_after", "thin_after")}
    before = {name: time.time() - age for name, age in ages.items()}

    def left(connection: Connection) -> int:
        due = (
            select(func.count()).select_from(steps).where(UNSETTLED, steps.c.last_received_at < before["settle_after"])
        )
        blocks = [*settle.read_runs(connection, SETTLED), *thin.read_runs(connection, before["thin_after"])]
        return int(connection.execute(due).scalar_one()) + len(blocks)

    settings = {f"OFFPOLICY_{name.upper()}": str(age) for name, age in ages.items()}
    with serving(url, folder, **settings) as service:
        posting = Posting(service, run, run.steps + 9_000)
        due, took, beside = until_done(url, left, posting)
    with closing(Store.open(url)) as store:
        swept = taken(lambda: store.upkeep.sweep(time.time(), 600.0))
    return [
        Figure(f"an hour's steps made small and thin, {due:,} of them and runs", took, [took]),
        Figure("a post meanwhile: slowest, median", max(beside), beside),
        Figure("a sweep that finds nothing to close", swept, [swept]),
    ]


def of_deletion(url: str, folder: Path, run: Run, beside: Run) -> list[Figure]:
    """A run goes: its name at once, its rows by turns."""
    with serving(url, folder) as service:
        posting = Posting(service, beside, beside.steps + 9_500)
        time.sleep(QUIET)
        asked = urllib.request.Request(f"{service.url}/v1/runs/{run.name}", method="DELETE")
        gone = taken(lambda: urllib.request.urlopen(asked).close())
        _, purged, posts = until_done(url, deleted, posting)
    what = f"deleting a run of {run.steps:,} steps"
    return [
        Figure(f"{what}: until its name is free", gone, [gone]),
        Figure(f"{what}: all of its rows", purged, [purged]),
        Figure(f"{what}: a post meanwhile: slowest, median", max(posts), posts),
    ]


def deleted(connection: Connection) -> int:
    """Deleted runs of which rows are left, and their steps."""
    gone = select(runs.c.id).where(runs.c.deleted)
    steps_left = select(func.count()).select_from(steps).where(steps.c.run_id.in_(gone))
    return len(connection.execute(gone).all()) + int(connection.execute(steps_left).scalar_one())


def until_done(url: str, left: Callable[[Connection], int], posting: Posting) -> tuple[int, float, list[float]]:
    """How much was left at first, milliseconds from when it grew less until nothing was, and of the posts meanwhile."""
    with closing(Database(parse_url(url), bounded=False)) as database:

        def look() -> int:
            with database.reading() as connection:
                return left(connection)

        asked, due = time.monotonic(), look()
        now, began, done = due, asked, asked
        while done - asked < LONGEST and (now or time.monotonic() - done < OVER):
            time.sleep(LOOK)
            found = look()
            if now:
                done = time.monotonic()
            if now == due and found < due:
                began = done - LOOK
            now = found
    if now:
        raise TimeoutError(f"{now} of {due} are left after {LONGEST:g} s")
    posting.end()
    return due, 1e3 * (done - began), list(posting.between(began, done))


def sizes(url: str) -> dict[str, float]:
    """MB by table, indices and large values with it; of a SQLite file as a whole."""
    with closing(Database(parse_url(url))) as database, database.reading() as connection:
        if connection.dialect.name == "sqlite":
            pages, size = (connection.execute(text(f"PRAGMA page_{what}")).scalar_one() for what in ("count", "size"))
            return {"database": pages * size / 1e6}
        query = text("SELECT coalesce(sum(pg_total_relation_size(relid)), 0) FROM pg_partition_tree(:name)")
        found = {name: connection.execute(query, {"name": name}).scalar_one() for name in metadata.tables}
        found["database"] = connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one()
    return {name: float(size) / 1e6 for name, size in found.items()}


def taken(work: Callable[[], object]) -> float:
    """Milliseconds that something takes."""
    began = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - began)
