"""Figures of steps as they are read: derived from the step's summary, or as they were stored where it has none.

A step keeps its summary and no figures until its summary goes into a block (store.write.settle); an older release
stored the figures of every step. Of a step that is thin (store.write.thin) the headline figures are left. What was
derived lately is kept: pages and scrapes ask for the newest step again and again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson
from sqlalchemy import Connection, case

from offpolicy_monitor.figures import at, from_headline
from offpolicy_monitor.store.rows import headlines
from offpolicy_monitor.store.rows.codec import pack, unpack
from offpolicy_monitor.store.rows.readable import readable
from offpolicy_monitor.store.rows.tables import steps
from offpolicy_monitor.store.rows.wanted import figures_for, needed
from offpolicy_monitor.summary import stored

#: Steps whose figures are kept as JSON, some 50 KB each with their summaries.
MOST_KEPT: Final = 128
#: What a step's figures are read off: its figures where they are stored, else its summary.
COLUMNS: Final = (
    steps.c.id.label("step_id"),
    steps.c.block,
    steps.c.figures,
    case((steps.c.figures.is_(None), steps.c.summary)).label("derived_from"),
)


@dataclass(frozen=True)
class Figures:
    """The figures of a step as it is stored; both None where none of its shards is merged yet, and of a thin step."""

    figures: bytes | None
    derived_from: bytes | None

    def read(self) -> dict[str, Any]:
        """All of them, the caller's own; empty where there are none. StoredSummaryError where they cannot be read."""
        if self.figures is not None:
            return unpack(self.figures)
        found: dict[str, Any] = {} if self.derived_from is None else orjson.loads(_derived(self.derived_from))
        return found

    def shown(self, step: int | None) -> dict[str, Any]:
        """The same, empty also where they cannot be read; `step` is its number."""
        if self.figures is not None or self.derived_from is None:
            return self.read()
        found = readable(_derived, self.derived_from, step)
        return {} if found is None else orjson.loads(found)

    def at_each(self, paths: Sequence[str], step: int) -> list[float | None]:
        """Those of `shown` at the paths, None where the step lacks one; of a summary no more is read than they take."""
        if self.figures is not None:
            found = unpack(self.figures)
        else:
            summary = None if self.derived_from is None else readable(stored.from_bytes, self.derived_from, step)
            found = {} if summary is None else figures_for(needed(summary, paths), paths)
        return [at(found, path) for path in paths]


def of_rows(connection: Connection, rows: Sequence[Any]) -> list[Figures]:
    """The figures of steps, in the order of their rows with COLUMNS; of thin ones those that are left."""
    left = _headlines(connection, [row.step_id for row in rows if row.block and row.figures is None])
    return [Figures(left.get(row.step_id, row.figures), row.derived_from) for row in rows]


def headlines_of_rows(connection: Connection, rows: Sequence[Any]) -> list[Figures]:
    """The headline figures of steps, in the order of their rows with `step_id`; of no summary anything is read."""
    kept = _headlines(connection, [row.step_id for row in rows])
    return [Figures(kept.get(row.step_id), None) for row in rows]


def _headlines(connection: Connection, ids: Sequence[int]) -> dict[int, bytes]:
    found = headlines.read(connection, ids)
    return {step: pack(from_headline(figures)) for step, figures in found.items()}


@lru_cache(MOST_KEPT)
def _derived(summary: bytes) -> bytes:
    """As JSON, which takes a tenth of the objects' room, and keeps what is shared from being changed."""
    return orjson.dumps(stored.from_bytes(summary).step_figures())
