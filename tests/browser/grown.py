"""Databases of the size of a year's work: a few posted runs, multiplied by the database itself while no service runs.

Steps that were copied have their figures and verdicts and share one summary, as the old steps of a long run do.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

#: Steps at the end of a run that keep their summaries, as the service does.
SUMMARIES: Final = 20


@dataclass(frozen=True)
class Copy:
    """A run like `of`, with so many steps; `ago`: seconds since its last batch."""

    name: str
    of: str
    steps: int
    ago: float = 0.0


def grow(file: Path, copies: Sequence[Copy]) -> None:
    """Write the copies into the database that a service has left."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("PRAGMA journal_mode = OFF")  # a second less; where this fails so does the test
        for copy in copies:
            _write(connection, copy)


def _write(connection: sqlite3.Connection, copy: Copy) -> None:
    [original] = connection.execute("SELECT id FROM runs WHERE name = ?", (copy.of,)).fetchone()
    [[run], [first], [count]] = (
        connection.execute(query).fetchone()
        for query in (
            "SELECT max(id) + 1 FROM runs",
            "SELECT max(id) + 1 FROM steps",
            f"SELECT count(*) FROM steps WHERE run_id = {original}",
        )
    )
    _clone(connection, "runs", f"id = {original}", id=run, name=copy.name, last_batch_at=f"last_batch_at - {copy.ago}")
    for table in ("judgements", "alerts"):
        changes: dict[str, Any] = {"run_id": run, "last_step": copy.steps - 1} if table == "alerts" else {"run_id": run}
        _clone(connection, table, f"run_id = {original}", **changes | ({"id": "NULL"} if table == "alerts" else {}))
    # Steps from the last one back, so that the end of the copy is the end of the run, over and over.
    shift = f"(step - {count} + {copy.steps})"
    shared = f"SELECT {run}, {run}, 0, {copy.steps - 1}, {copy.steps}, summary, last_received_at"
    connection.execute(f"INSERT INTO blocks {shared} FROM steps WHERE run_id = {original} AND step = 0")
    for block, moved in _blocks(copy.steps, count):
        where = f"run_id = {original} AND {shift} - {moved} >= 0"
        own, has_own = f"{first} + step + {block * count}", f"({block} = 0 AND step >= {count - SUMMARIES})"
        kept = {"summary": f"CASE WHEN {has_own} THEN summary END", "block": f"CASE WHEN NOT {has_own} THEN {run} END"}
        _clone(connection, "steps", where, id=own, run_id=run, step=f"{shift} - {moved}", **kept)
        _clone(connection, "judged_steps", where, run_id=run, step=f"{shift} - {moved}")
        source = f"(SELECT metrics.*, step FROM metrics JOIN steps ON id = step_id WHERE {where})"
        connection.execute(f"INSERT INTO metrics SELECT {own}, names_id, figures FROM {source}")


def _blocks(steps: int, count: int) -> Iterator[tuple[int, int]]:
    """(number, steps that it lies before the end) of each time that a run of `count` steps is put down."""
    return ((block, block * count) for block in range(-(-steps // count)))


def _clone(connection: sqlite3.Connection, table: str, where: str, **changes: Any) -> None:
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    texts = {name: f"'{value}'" if name == "name" else str(value) for name, value in changes.items()}
    chosen = ", ".join(texts.get(name, name) for name in names)
    connection.execute(f"INSERT INTO {table} SELECT {chosen} FROM {table} WHERE {where}")
