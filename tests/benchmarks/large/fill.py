"""Fills a database as if many runs had gone on for months: a short run is stored, made small and thin by the store
itself, and its rows are multiplied by the database.

Every row that is copied is one that the store has written; rows lie in the order in which shards would have arrived,
those of one run between those of all others. What a copied step is follows from its age, by the default settings.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from offpolicy_monitor.server.judge import RulesJudge
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import ShardKey, ShardRecord, Store
from offpolicy_monitor.store.migrate import upgrade
from offpolicy_monitor.store.rows.histories import FIRST, NEWEST
from offpolicy_monitor.store.rows.tables import alerts, blocks, judged_steps, judgements, metrics, runs, shards, steps
from offpolicy_monitor.store.session import Database, parse_url
from offpolicy_monitor.store.write.settle import KEPT
from offpolicy_monitor.store.write.thin import MERGED
from offpolicy_monitor.summary import StepSummary
from sqlalchemy import Connection, Table, text

from tests.benchmarks.size import measured

TOKENS: Final = 6_400
#: Different steps that are measured; steps of the short run of each age: thin, settled, as they came.
DIFFERENT, PART = 20, 100
LIKE: Final = "measured"
DAY: Final = 86_400.0
AGES: Final = (40 * DAY, 10 * DAY, 0.0)
#: Steps that share a summary: thin, settled.
SETTLED: Final = int(Settings.model_fields["block_steps"].default)
THIN: Final = SETTLED * MERGED


@dataclass(frozen=True)
class Run:
    """A run to make: so many steps, one every so many seconds, the last one now."""

    name: str
    steps: int
    seconds: float

    def older(self, setting: str, whole: int) -> int:
        """Its steps older than a setting says, in whole blocks; the newest ones share no summary."""
        newest = max(int(Settings.model_fields[setting].default / self.seconds), KEPT)
        return max(0, self.steps - newest) // whole * whole


@dataclass(frozen=True)
class Copy:
    """A row of `plan`: a step to be, and the one of the short run that it is like."""

    run: int
    step: int
    at: float
    like: int
    block: int | None
    judged: bool


def months(count: int = 200, length: int = 2_000, long: int = 100_000) -> list[Run]:
    """One long run of a step per minute, among many of one in five minutes."""
    return [Run("long", long, 60.0), *(Run(f"run-{number:03}", length, 300.0) for number in range(count))]


def fill(url: str, wanted: Sequence[Run]) -> None:
    """Bring an empty database to the newest schema and write the runs, whose last batches have just come."""
    upgrade(url)
    now = time.time()
    store_short_run(url, now)
    with closing(Database(parse_url(url), bounded=False)) as database:
        with database.writing() as connection:
            multiply(connection, wanted, now)
        with database.plain() as connection:
            connection.execute(text("VACUUM ANALYZE" if connection.dialect.name == "postgresql" else "ANALYZE"))


def store_short_run(url: str, now: float) -> None:
    """The run that the others are made of, stored and made small by the store."""
    summaries = [measured(TOKENS, 1, seed)[0] for seed in range(DIFFERENT)]
    for part, age in enumerate(AGES):
        with closing(Store.open(url, partial(float, now - age), RulesJudge())) as store:
            for step in range(part * PART, (part + 1) * PART):
                store.ingest([shard(LIKE, step, summaries[step % DIFFERENT], now - age)])
    with closing(Store.open(url, partial(float, now), RulesJudge())) as store:
        store.upkeep.tidy(Settings.model_fields["settle_after"].default, SETTLED)
        store.upkeep.thin(Settings.model_fields["thin_after"].default)


def shard(run: str, step: int, summary: StepSummary, when: float) -> ShardRecord:
    """A step of one shard."""
    digest = step.to_bytes(16, "little")
    return ShardRecord(ShardKey(run, 0, step, 0, 0), 1, digest, summary, when, minibatches=1, policy_version=step)


def multiply(connection: Connection, wanted: Sequence[Run], now: float) -> None:
    """Write the runs, of rows of the short one, which is gone afterwards."""
    [like] = _ids(connection, "SELECT id FROM runs WHERE name = :name", name=LIKE)
    copies, first_block = list[Copy](), _next(connection, blocks)
    for number, run in enumerate(wanted):
        changes = {"name": f"'{run.name}'", "last_batch_at": f"{now}", "revision": f"{number}"}
        [made] = _ids(connection, f"{_copied(runs, changes)} WHERE runs.id = {like} RETURNING id")
        last = {"run_id": f"{made}", "step": f"{run.steps - 1}", "last_step": f"{run.steps - 1}"}
        for table in (judgements, alerts):
            connection.execute(text(f"{_copied(table, last)} WHERE run_id = {like}"))
        copies += _steps(run, made, now, first_block + len(copies))
    copies.sort(key=lambda copy: copy.at)
    _plan(connection, copies, _next(connection, steps))
    planned = f"FROM plan JOIN steps ON steps.run_id = {like} AND steps.step = like_step"
    own = {"id": "plan.id", "block": "plan.block", "first_received_at": "at", "last_received_at": "at"}
    placed = {"run_id": "plan.run_id", "step": "plan.step"}
    of_block = {name: f"plan.{name}" for name in ("run_id", "step", "last_step", "steps")} | {"id": "plan.block"}
    of_block["last_received_at"] = "CASE WHEN blocks.last_received_at IS NOT NULL THEN plan.at END"
    grouped = "block, run_id, min(step) AS step, max(step) AS last_step, count(*) AS steps, max(at) AS at"
    grouped = (
        f"(SELECT {grouped}, min(like_step) AS like_step FROM plan WHERE block IS NOT NULL GROUP BY block, run_id)"
    )
    of_step = f"{{0}}.run_id = {like} AND {{0}}.step = like_step"
    for statement in (
        f"{_copied(blocks, of_block, '')} {planned.replace('plan', grouped + ' AS plan', 1)}"
        " JOIN blocks ON blocks.id = steps.block ORDER BY plan.block",
        f"{_copied(steps, own | placed, '')} {planned} ORDER BY plan.id",
        f"{_copied(metrics, {'step_id': 'plan.id'}, '')} {planned} JOIN metrics ON step_id = steps.id ORDER BY plan.id",
        f"{_copied(shards, placed | {'received_at': 'at'}, '')} FROM plan JOIN shards ON {of_step.format('shards')}"
        " ORDER BY plan.id",
        f"{_copied(judged_steps, placed, '')} FROM plan JOIN judged_steps ON {of_step.format('judged_steps')}"
        " WHERE judged = 1 ORDER BY plan.id",
        f"DELETE FROM runs WHERE id = {like}",
        "DROP TABLE plan",
    ):
        connection.execute(text(statement))
    if connection.dialect.name == "postgresql":
        for table in (steps, blocks):
            _ids(connection, f"SELECT setval('{table.name}_id_seq', (SELECT max(id) FROM {table.name}))")


def _steps(run: Run, key: int, now: float, blocks_from: int) -> Iterator[Copy]:
    """The steps of a run, the last one now; runs take turns."""
    thin, settled = run.older("thin_after", THIN), run.older("settle_after", SETTLED)
    for step in range(run.steps):
        age = 0 if step < thin else 1 if step < settled else 2
        whole = (THIN, SETTLED, None)[age]
        judged = age > 0 or step < FIRST or step >= run.steps - NEWEST
        at = now - (run.steps - 1 - step) * run.seconds - key * 0.01
        block = None if whole is None else blocks_from + step // whole * whole
        yield Copy(key, step, at, age * PART + step % PART, block, judged)


def _plan(connection: Connection, copies: Sequence[Copy], first: int) -> None:
    """Put the copies where the database joins them, with the ids of their rows."""
    connection.execute(
        text(
            "CREATE TEMPORARY TABLE plan (id bigint, run_id bigint, step bigint, at double precision, "
            "like_step bigint, block bigint, judged bigint)"
        )
    )
    rows = (
        (first + index, copy.run, copy.step, copy.at, copy.like, copy.block, int(copy.judged))
        for index, copy in enumerate(copies)
    )
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        driver.executemany("INSERT INTO plan VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        return
    with driver.cursor() as cursor, cursor.copy("COPY plan FROM STDIN") as writing:
        for row in rows:
            writing.write_row(row)
    connection.execute(text("ANALYZE plan"))


def _copied(table: Table, changes: dict[str, str], source: str | None = None) -> str:
    """The beginning of a statement that writes rows of a table again, some columns changed."""
    numbered = "id" in table.c and "id" not in changes
    names = [column.name for column in table.c if not (numbered and column.name == "id")]
    chosen = ", ".join(changes.get(name, f"{table.name}.{name}") for name in names)
    source = f"FROM {table.name}" if source is None else source
    return f"INSERT INTO {table.name} ({', '.join(names)}) SELECT {chosen} {source}"


def _next(connection: Connection, table: Table) -> int:
    [last] = _ids(connection, f"SELECT coalesce(max(id), 0) FROM {table.name}")
    return last + 1


def _ids(connection: Connection, query: str, **values: Any) -> Sequence[int]:
    found: Iterable[int] = connection.execute(text(query), values).scalars().all()
    return list(found)
