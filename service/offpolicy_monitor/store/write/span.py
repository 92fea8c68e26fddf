"""Makes spans: headline figures of settled steps in columns, of some hundred gradient steps each.

From the first step of a run on, as soon as all of a span are in blocks. The rows that they are made of stay as they
are; a crash may come between any two.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import zstandard
from numpy.typing import NDArray
from sqlalchemy import Connection, delete, func, select

from offpolicy_monitor.store.rows import headlines
from offpolicy_monitor.store.rows.spans import INDEX, end_of
from offpolicy_monitor.store.rows.statement import putting
from offpolicy_monitor.store.rows.step_index import StepIndex
from offpolicy_monitor.store.rows.tables import blocks, metrics, spans, steps

#: Rows of `steps` in one: two rows of as many float64 fill a page of PostgreSQL.
ROWS: Final = 480
LEVEL: Final = 3
#: Runs of which it is looked at once whether their spans stand.
LOOKED_AT: Final = 8


@dataclass(frozen=True)
class Span:
    """A span to be: `rows` are those of `steps` in its range, superseded ones too; figures [n] float64 by name."""

    run: int
    step: int
    last_step: int
    rows: int
    index: StepIndex
    figures: dict[str, NDArray[np.float64]]


def read_runs(connection: Connection) -> Sequence[int]:
    """Runs with enough steps in blocks after their last span."""
    ends = select(spans.c.run_id, func.max(spans.c.last_step).label("end")).where(spans.c.name == INDEX)
    known = ends.group_by(spans.c.run_id).subquery()
    after = known.c.end.is_(None) | (blocks.c.step > known.c.end)
    query = select(blocks.c.run_id).select_from(blocks.outerjoin(known, known.c.run_id == blocks.c.run_id))
    query = query.where(after).group_by(blocks.c.run_id).having(func.sum(blocks.c.steps) >= ROWS)
    return connection.execute(query).scalars().all()


def read_fallen(connection: Connection, after: int) -> tuple[Sequence[tuple[int, int]], int]:
    """Of the next LOOKED_AT runs with spans: (run, last step of those that stand) where others fell; where to go on."""
    query = select(spans.c.run_id, func.max(spans.c.last_step)).where(spans.c.name == INDEX, spans.c.run_id > after)
    found = connection.execute(query.group_by(spans.c.run_id).order_by(spans.c.run_id).limit(LOOKED_AT)).all()
    ends = [(run, end_of(connection, run), last) for run, last in found]
    return [(run, end) for run, end, last in ends if end < last], ends[-1][0] if len(ends) == LOOKED_AT else 0


def drop(connection: Connection, run: int, end: int) -> int:
    """Drop the spans of a run after this step; answers how many rows."""
    return connection.execute(delete(spans).where(spans.c.run_id == run, spans.c.last_step > end)).rowcount


def read_span(connection: Connection, run: int) -> Span | None:
    """The next span of a run; None where too few of the steps after the last one are in blocks."""
    end = end_of(connection, run)
    columns = (steps.c.step, steps.c.minibatch, *StepIndex.COLUMNS, steps.c.superseded, steps.c.block)
    query = (
        select(*columns, metrics.c.names_id, metrics.c.figures)
        .select_from(steps.outerjoin(metrics, metrics.c.step_id == steps.c.id))
        .where(steps.c.run_id == run, steps.c.step > end)
        .order_by(steps.c.step, steps.c.minibatch, steps.c.attempt)
    )
    found = connection.execute(query.limit(ROWS + 1)).all()
    # The last step may go on beyond what was read.
    whole = [row for row in found if row.step != found[-1].step]
    if len(found) <= ROWS or not whole or not all(row.superseded or row.block for row in whole):
        return None
    standing = [row for row in whole if not row.superseded]
    kept = [(row.names_id, row.figures) for row in standing]
    names = headlines.names_of(connection, {names_id for names_id, _ in kept if names_id is not None})
    paths = sorted({path for known in names.values() for path in known})
    table = headlines.columns_of(connection, kept, paths, names)
    figures = {path: column for path, column in zip(paths, table, strict=True) if not np.isnan(column).all()}
    return Span(run, whole[0].step, whole[-1].step, len(whole), StepIndex.of(standing), figures)


def keep(connection: Connection, span: Span) -> int:
    """Write a span, in place of what there was from its first step on; answers of how many rows of `steps` it is."""
    connection.execute(delete(spans).where(spans.c.run_id == span.run, spans.c.last_step >= span.step))
    packed = zstandard.ZstdCompressor(LEVEL).compress(span.index.to_bytes())
    of_span = {"run_id": span.run, "step": span.step, "last_step": span.last_step, "rows": span.rows}
    columns = {INDEX: packed} | {name: column.tobytes() for name, column in span.figures.items()}
    _PUT.run(connection, *({**of_span, "name": name, "numbers": numbers} for name, numbers in columns.items()))
    return span.rows


_PUT: Final = putting(spans)
