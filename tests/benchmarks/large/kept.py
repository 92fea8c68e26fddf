"""What looking after a large database takes: an hour's steps that grow old, a run that goes, and its size by tables."""

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial

from offpolicy_monitor.server.judge import RulesJudge
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import Store
from offpolicy_monitor.store.rows.tables import metadata
from offpolicy_monitor.store.session import Database, parse_url
from sqlalchemy import text

from tests.benchmarks.large.figures import Figure
from tests.benchmarks.large.fill import SETTLED, Run

HOUR = 3600.0


def of_upkeep(url: str) -> list[Figure]:
    """Making an hour's steps small and thin: all of it, and the longest turn that shards would wait for."""
    clock = partial(float, time.time() + HOUR)
    with closing(Store.open(url, clock, RulesJudge())) as store:
        turns = Turns()
        settle, thin = (Settings.model_fields[name].default for name in ("settle_after", "thin_after"))
        tidied = taken(lambda: store.upkeep.tidy(settle, SETTLED, turns))
        thinned = taken(lambda: store.upkeep.thin(thin, turns))
        swept = taken(lambda: store.upkeep.sweep(clock(), 600.0, turns))
    steps = turns.answered
    return [
        Figure("an hour's steps made small", tidied, [tidied]),
        Figure("an hour's steps made thin", thinned, [thinned]),
        Figure(f"the longest of {len(turns.seconds)} turns, of {steps} steps", 1e3 * max(turns.seconds), turns.longest),
        Figure("a sweep that finds nothing to close", swept, [swept]),
    ]


def of_deletion(url: str, run: Run) -> list[Figure]:
    """A run goes: its name at once, its rows by turns."""
    with closing(Store.open(url, judge=RulesJudge())) as store:
        turns = Turns()
        gone = taken(lambda: store.delete_run(run.name))
        purged = taken(lambda: store.upkeep.purge(turns))
    what = f"deleting a run of {run.steps:,} steps"
    return [
        Figure(f"{what}: until its name is free", gone, [gone]),
        Figure(f"{what}: all of its rows", purged, [purged]),
        Figure(f"{what}: the longest of {len(turns.seconds)} turns", 1e3 * max(turns.seconds), turns.longest),
    ]


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


class Turns:
    """Takes every turn at once, and remembers how long each was."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.answered = 0

    def __call__(self, work: Callable[[], int]) -> int:
        began = time.perf_counter()
        answer = work()
        self.seconds.append(time.perf_counter() - began)
        self.answered += answer
        return answer

    @property
    def longest(self) -> list[float]:
        """Milliseconds of each."""
        return [1e3 * seconds for seconds in self.seconds]


def taken(work: Callable[[], object]) -> float:
    """Milliseconds that something takes."""
    began = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - began)
