"""docs/summary.md: what a summary holds, from the tables that are declared."""

from collections.abc import Iterator

from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.rows import SPARSE, Row, Table
from offpolicy_monitor.summary.tables.worst import COLUMNS, Column

from scripts.docs.markdown import table

HEAD = """# What a summary holds

A shard is kept as its summary: arrays of sums and counts, by the names of their rows (`gaps/total/k3`). A summary has
all rows of a table or none, which says what was sent; `{gap}` and other names in braces stand for any. Where tables of
one path have parts, they are one record. Counts are int64, everything else float64, of nats, ratios and probabilities.

Merging adds; where it says so it keeps the smaller or the larger, or adds squared distances from a mean and what the
two means are apart. A sum that an older stored version lacks is absent from a merge with it.

d is the log-ratio of a token of the gap, r = exp(d), p and q are the probabilities of its numerator and denominator
policy, w = exp(clip(d, +-20)), L and D the mean and the sum of d over a sequence, g = exp(L), v = exp(clip(D, +-20)), A
the advantage.

What a table needs must all have been sent, or there is none. A gap stands for its two log-probs, `{gap}` for those of
the gap in the path, or of its method row, and experts of a gap for the arrays of the same two policies. Words after
these say where alone there is one: of which rules, or in which batches.

Beside the arrays a summary has the method rows that ran, and the worst sequences of the step.

This page is generated from the modules that declare the tables (`service/offpolicy_monitor/summary`) by `make docs`.

"""

OF_SEQUENCES = """
## The worst sequences

C sequences stand first in some ranking, K of them keep raw tokens; P positions have log-probs, V numbers were sent
beside them. They merge by their rankings: who stands in none is left out, and raw tokens go with the rank for which
they were kept.

"""


def summary_page() -> str:
    """One row per row of a table, and per column of the worst sequences."""
    rows = [line for declared in LAYOUT.tables for line in _lines(declared)]
    columns = [(f"`{column.name}`", column.holds, _shape(column)) for column in COLUMNS]
    return "".join(
        [
            HEAD,
            table(("table", "row", "holds", "shape", "merges by", "since", "needs"), rows),
            OF_SEQUENCES,
            table(("column", "holds", "shape"), columns),
        ]
    )


def _lines(declared: Table) -> Iterator[tuple[str, ...]]:
    needs = "; ".join(filter(None, (", ".join(declared.needs), declared.when)))
    for row in declared.rows:
        name = f"`{row.name}`" if row.name else ""
        yield f"`{declared.key}`", name, _meaning(row), _shape(row), row.merge, str(row.since), needs


def _meaning(row: Row) -> str:
    """Counts and extremes say what they are, sums what is added up."""
    is_sum = row.kind != "count" and row.merge in ("sum", "deviation")
    return f"sum of {row.meaning}" if is_sum else row.meaning


def _shape(row: Row | Column) -> str:
    return " x ".join(map(_size, row.shape)) or "1"


def _size(size: int | str) -> str:
    return "any" if size == SPARSE else str(size)
