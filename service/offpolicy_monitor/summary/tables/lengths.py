"""Length bias: whether a rule drops long answers more often than short ones, read off tables by length.

Lengths stand in bins of a quarter of a power of two. The unit is the sequence for rules on whole sequences, and the
token for the others: each unit is dropped or not, and has the length of its sequence.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.pairs import Pairs, correlation
from offpolicy_monitor.summary import rows as schema
from offpolicy_monitor.summary.arrays import Array, Arrays
from offpolicy_monitor.summary.kind import Kind
from offpolicy_monitor.summary.method import path_of

if TYPE_CHECKING:
    from torch import Tensor

    from offpolicy_monitor.measure.view import BlockView

Floats = NDArray[np.float64]

BINS_A_POWER: Final = 4
BINS: Final = 64 * BINS_A_POWER
QUARTILE: Final = 0.25
UNITS: Final = ("sequences", "tokens")

TABLES: Final = (
    *(
        schema.Table(
            f"length/{{gap}}/{unit}",
            (schema.count("", f"{unit} by length", BINS, total=f"gaps/{{gap}}/{unit}"),),
            "the gap's tokens by the length of their sequence",
        )
        for unit in UNITS
    ),
    *(
        schema.Table(
            f"masked/{{row}}/{{gap}}/{unit}",
            (schema.count("", f"dropped {unit} by length", BINS, total=f"methods/{{row}}/masked_{unit}"),),
            "what a method row drops by length",
        )
        for unit in UNITS
    ),
)


def length_biases(arrays: Arrays) -> dict[str, dict[str, Any]]:
    """{row: {"length_bias": figures}}: `spearman`, `slope`, `shortest`, `longest`, `ratio`, `difference`, `unit`.

    `spearman` is the rank correlation of dropped (0/1) with length, equal lengths within a bin; `slope` the
    least-squares slope of dropped on log2 length; `shortest` and `longest` the share dropped in the shortest and the
    longest quarter of the sequences, `ratio` and `difference` the latter over and less the former.

    A row is left out unless it ran on all tokens of its gap: lengths are kept of all shards together, and do not say
    which were those of the shards that ran it.
    """
    rows: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for path in arrays.under("masked"):
        _, row, gap, unit = path.split("/")
        rows.setdefault((gap, unit), []).append((unquote(row), path))
    found: dict[str, dict[str, Any]] = {}
    for (gap, unit), of_unit in rows.items():
        if f"length/{gap}/tokens" not in arrays:
            continue
        whole = int(arrays[f"length/{gap}/tokens"].sum())
        ran = {row: path for row, path in of_unit if arrays.record(path_of(row)).get("tokens") == whole}
        if ran:
            found |= dict(zip(ran, _biases(arrays, gap, unit, [arrays[path] for path in ran.values()]), strict=True))
    return found


def _biases(arrays: Arrays, gap: str, unit: str, masked: Sequence[Array]) -> Iterator[dict[str, Any]]:
    """The figures of rows by what each drops by length, [BINS] each; R rows, B bins that hold something."""
    units, sequences = arrays[f"length/{gap}/{unit}"], arrays[f"length/{gap}/sequences"]
    bins = np.flatnonzero(units)
    counts, dropped = units[bins].astype(np.float64), np.stack([row[bins] for row in masked]).astype(np.float64)
    ranks, logs = np.cumsum(counts) - (counts - 1) / 2, (bins + 0.5) / BINS_A_POWER
    by_rank, by_log = _pairs(counts, ranks, dropped), _pairs(counts, logs, dropped)
    shortest = _shares(counts, dropped, sequences[bins], int(sequences.sum()))
    longest = _shares(counts[::-1], dropped[:, ::-1], sequences[bins][::-1], int(sequences.sum()))
    for ranked, of_log, low, high in zip(by_rank, by_log, shortest, longest, strict=True):
        # Dropped is 0 or 1, so that its mean tells its spread.
        spread = ranked.count * ranked.y * (1 - ranked.y)
        bias = {
            "unit": unit,
            "spearman": correlation(replace(ranked, yy=spread)),
            "slope": of_log.slope if of_log.xx > 0 else None,
            "shortest": low,
            "longest": high,
            "ratio": high / low if low else None,
            "difference": high - low,
        }
        yield {"length_bias": bias}


def _pairs(counts: Floats, values: Floats, dropped: Floats) -> list[Pairs[float]]:
    """Of each row, (value of its bin, dropped) of every unit; counts and values [B], dropped [R, B]."""
    count = float(counts.sum())
    mean = float(counts @ values) / count
    apart, means = values - mean, dropped.sum(1) / count
    xx, xy = float(counts @ apart**2), (dropped - counts * means[:, None]) @ apart
    return [Pairs(count, mean, y, xx, joint, math.nan) for y, joint in zip(means.tolist(), xy.tolist(), strict=True)]


def _shares(counts: Floats, dropped: Floats, sequences: Array, whole: int) -> list[float]:
    """Of each row, the share dropped among the first quarter of all sequences; a bin may count in part.

    counts, sequences [B] in the order of that quarter, dropped [R, B].
    """
    before = np.cumsum(sequences) - sequences
    left = np.clip(QUARTILE * whole - before, 0.0, sequences)
    part = np.divide(left, sequences, out=np.zeros(len(counts)), where=sequences > 0)
    counted = float(counts @ part)
    shares: list[float] = (dropped @ part / counted).tolist() if counted else [0.0] * len(dropped)
    return shares


def sums_of(view: "BlockView") -> "dict[str, Tensor]":
    """[G, bins] of sequences and tokens by length, and [rows, bins] of what rows drop, in what they decide about."""
    import torch

    from offpolicy_monitor.core.cells import tally
    from offpolicy_monitor.core.gap import chosen

    gaps, counts = view.number, view.own(view.gaps.counts)
    bins = torch.floor(torch.log2(counts.clamp(min=1.0)) * BINS_A_POWER).long()
    weights, places = [view.own(view.gaps.filled), counts], [*range(gaps), *range(gaps)]
    if view.dropped is not None:
        of_tokens = view.decided.tokens
        number = 0 if of_tokens is None else len(of_tokens.drops)
        weights += [view.dropped[0, :number], view.dropped[0, number:] > 0]
        places += [placed.gap for placed in view.decided.drops]
    counted = tally(chosen(bins, places), BINS, torch.cat(weights))
    names = ("length/sequences", "length/tokens", "masked")
    return dict(zip(names, torch.split(counted, [gaps, gaps, len(places) - 2 * gaps]), strict=True))


def tables_of(arrays: Mapping[str, Array], view: "BlockView") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The length tables of gaps with a token."""
    gaps, tokens, rows = view.block.batch.gaps, arrays["gaps/tokens"], view.decider.rows
    for place, gap in enumerate(gaps):
        if tokens[place]:
            for unit in ("sequences", "tokens"):
                yield f"length/{gap}/{unit}", {"": arrays[f"length/{unit}"][place]}
    units = [UNITS[not group.whole] for group in view.decided.groups for _ in group.drops]
    for placed, unit, counts in zip(view.decided.drops, units, arrays["masked"], strict=True):
        row = rows[placed.row]
        if tokens[gaps.index(row.gap)]:
            yield f"masked/{quote(row.name, safe='')}/{row.gap}/{unit}", {"": counts}


KIND: Final = Kind("lengths", TABLES, measured=__name__, of_rows=True)
