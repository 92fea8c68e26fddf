"""The tables of a summary by where the pass leaves their numbers: every value is a slot (results.py), 0 that of zero.

So a table's rows are named once for all batches of a kind. Counts and sums of a part are those of its gaps; parts have
no table in common.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.fused import arrays, dimensions
from offpolicy_monitor.fused.arrays import DENSE, MISMATCH, STALENESS, TOTAL
from offpolicy_monitor.fused.dimensions import Dimension
from offpolicy_monitor.fused.parts import Part
from offpolicy_monitor.fused.results import SENT_PARTS, Result
from offpolicy_monitor.fused.totals import EXACT, GRIDS, MIDDLE, PAIRS
from offpolicy_monitor.methods.rule import Clip, decides_tokens
from offpolicy_monitor.summary.arrays import NOWHERE
from offpolicy_monitor.summary.batch import CROSS_ROWS
from offpolicy_monitor.summary.gap import QUANTITIES, SIGNS
from offpolicy_monitor.summary.histogram import BINS
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.tables.breakdown import GAP_KEYS
from offpolicy_monitor.summary.tables.density import BINS as BINS_OF_DENSITY
from offpolicy_monitor.summary.tables.signature import GRID_KEYS, MIDDLE_KEYS, NEIGHBOUR_KEYS, PREFIX
from offpolicy_monitor.vocabulary import GAPS
from offpolicy_monitor.vocabulary import SIGNS as CELL_SIGNS

Array = NDArray[Any]
Table = dict[str, Any]
Tables = Iterator[tuple[str, Table]]

#: The names of the first of arrays' token sums, in their order, and of the sums over sequences in theirs.
_RATIO_SUMS: Final = (
    "k3_reverse", "js", "ratio", "ratio_excess", "weight", "weight_square", "weight_excess", "weight_excess_square",
    "tail_tokens", "exact_tokens", "clamped_tokens",
)  # fmt: skip
_PROBABILITIES: Final = (
    "probability_diff", "probability_diff_square", "probability_diff_max", "p", "q", "p_square", "q_square", "p_q",
)  # fmt: skip
_SEQUENCE_SUMS: Final = (
    "sequence_k3", "sequence_log_ratio_abs", "log_geometric", "log_geometric_abs", "log_geometric_min",
    "log_geometric_max", "geometric", "geometric_square", "geometric_excess", "geometric_excess_square",
    "inverse_geometric", "log_product", "log_product_min", "log_product_max", "product", "product_square",
    "product_excess", "product_excess_square", "perplexity_numerator", "perplexity_denominator",
    "log_perplexity_numerator", "log_perplexity_denominator",
)  # fmt: skip
_WEIGHTS: Final = ("weight", "weight_square", "weight_excess", "weight_excess_square", "weight_max", "truncated_tokens")
_KEPT: Final = ("k3_masked", "k3_kept", "log_ratio_square_masked", "log_ratio_square_kept")


class Named(NamedTuple):
    """A part, the slots of its numbers, and which of its tables there are (totals.finish)."""

    part: Part
    slots: Result
    present: int

    @property
    def size(self) -> Table:
        """Of any table that counts all tokens and sequences."""
        tokens, sequences, _ = self.slots.totals.size
        return {"tokens": tokens, "sequences": sequences}

    @property
    def advantages(self) -> bool:
        """Whether they were sent."""
        return bool(self.part.kind.advantages)

    @property
    def dimensions(self) -> Iterator[tuple[Dimension, Array]]:
        """The breakdowns, and the cells of each."""
        kind, sums = self.part.kind, self.slots.sums
        yield from zip(kind.of_runs, sums.runs, strict=True)
        yield from zip(kind.of_sequences, self.slots.of_sequences.buckets, strict=True)
        if kind.advantages == "token":
            yield dimensions.SIGN, sums.signs
        if kind.sampling:
            yield dimensions.MU, sums.mu


def tables_of(named: Named) -> Tables:
    """The tables that a part has."""
    part = named.part
    if part.joint:
        yield "cross", _cross(named)
        yield from _crossed(named)
        yield from _anchors(named)
    if part.alone:
        return
    for gap in part.gaps:
        index = GAPS.index(gap)
        yield f"gaps/{gap}", _gap(named, index)
        yield f"histograms/{gap}", _histograms(named, index)
        yield from _weighted(named, index)
        yield from _lengths(named, index)
    yield from _methods(named)
    yield from _breakdowns(named)
    yield from _signature(named)
    yield from _whatif(named)
    yield from _densities(named)


def empty_tables(parts: Sequence[Part], part: Part) -> Tables:
    """The gaps whose log-probs were sent, and the rows on them, of which no part has a token."""
    seen = {gap for other in parts if not other.alone for gap in other.gaps}
    for gap in part.kind.gaps:
        if gap not in seen:
            yield f"gaps/{gap}", _nothing(f"gaps/{gap}")
            yield f"histograms/{gap}", _nothing(f"histograms/{gap}")
    for row in part.rows.rows:
        if row.gap not in seen:
            path = f"methods/{quote(row.name, safe='')}"
            for key in (path, f"{path}#sides") if row.two_sided else (path,):
                yield key, _nothing(key)


def _nothing(key: str) -> Table:
    return {row.name: 0 for row in LAYOUT.at(key).rows}


def _gap(named: Named, gap: int) -> Table:
    x, totals = named.slots.sums.tokens[gap], named.slots.totals
    of_all = totals.gaps[gap]
    return {
        **named.size,
        **dict(zip(_RATIO_SUMS, x, strict=False)),
        **dict(zip(_SEQUENCE_SUMS, named.slots.of_sequences.gaps[gap], strict=True)),
        **dict(zip(_PROBABILITIES, totals.probabilities[gap], strict=True)),
        "log_ratio": of_all[arrays.SUM], "log_ratio_abs": of_all[arrays.ABS],
        "log_ratio_square": of_all[arrays.SQUARE], "log_ratio_deviation": x[arrays.DEVIATION],
        "log_ratio_min": of_all[arrays.LEAST], "log_ratio_max": of_all[arrays.MOST],
        "k3": of_all[arrays.K3_SUM], "multiplicative_excess": of_all[arrays.GROWTH],
    }  # fmt: skip


def _histograms(named: Named, gap: int) -> Table:
    counts = named.slots.counts.histograms[gap].reshape(1, 3, BINS), named.slots.of_sequences.histograms[gap]
    rows = np.concatenate(counts)
    return {name: _by_sign(own, len(SIGNS), named) for name, own in zip(QUANTITIES, rows, strict=True)}


def _by_sign(counts: Array, signs: int, named: Named) -> Array:
    """Counts by negative, zero, positive and perhaps mixed -> by all `signs`; the last, unknown, without advantages."""
    whole = np.zeros((signs, *counts.shape[1:]), counts.dtype)
    if named.advantages:
        whole[: len(counts)] = counts
    else:
        whole[-1] = counts[arrays.NEUTRAL]
    return whole


def _cross(named: Named) -> Table:
    totals = named.slots.totals
    squares = totals.gaps[[MISMATCH, STALENESS], arrays.SQUARE]
    sums = zip(CROSS_ROWS, (*squares, *totals.product), strict=True)
    return {"tokens": totals.size[0], **{row.name: slot for row, slot in sums}}


def _methods(named: Named) -> Tables:
    sums, of, totals = named.slots.sums, named.slots.of_sequences, named.slots.totals
    for row, k, of_tokens in named.part.rows.numbered:
        if row.gap not in named.part.gaps:
            continue
        clips = isinstance(row.rule, Clip)
        if of_tokens:
            low, high, *kept, mass = sums.rules[k]
            (masked, touched), by_length, weights = of.token_rules[k], of.masked_tokens[k], sums.weights[k]
            dropped = totals.dropped[k]
        else:
            low, high, *kept, mass, masked, touched = of.rules[k]
            by_length, weights, dropped = of.masked[k], of.weights[k], totals.dropped_of_sequences[k]
        if clips:
            x = totals.gaps[GAPS.index(row.gap)]
            kept = [0, x[arrays.K3_SUM], 0, x[arrays.SQUARE]]
        path = f"methods/{quote(row.name, safe='')}"
        counts = {**named.size, "masked_tokens": dropped, "masked_sequences": masked, "touched_sequences": touched}
        yield path, {**counts, **dict(zip(_KEPT, kept, strict=True))}
        if row.two_sided:
            yield f"{path}#sides", {"masked_low_tokens": low, "masked_high_tokens": high}
        if named.advantages:
            yield f"{path}#mass", {"advantage_mass": sums.advantages[0], "masked_advantage_mass": mass}
        if row.weight is not None:
            yield f"{path}#weights", dict(zip(_WEIGHTS, weights, strict=True))
        if not clips:
            unit = "tokens" if decides_tokens(row.rule, named.part.kind.advantages == "token") else "sequences"
            yield f"masked/{quote(row.name, safe='')}/{row.gap}/{unit}", {"": by_length}


def _breakdowns(named: Named) -> Tables:
    for dimension, buckets in named.dimensions:
        for gap in named.part.gaps:
            first = 1 + len(GAP_KEYS) * GAPS.index(gap)
            sums = buckets[first : first + len(GAP_KEYS)]
            yield f"breakdown/{dimension.path}/{gap}", _bucket_rows(dimension, GAP_KEYS, buckets[0], sums)


def _crossed(named: Named) -> Tables:
    """The cross terms of breakdowns."""
    names = [row.name for row in CROSS_ROWS]
    sums = [3 + len(GAP_KEYS) * MISMATCH, 3 + len(GAP_KEYS) * STALENESS, arrays.CELL - 1]
    for dimension, buckets in named.dimensions:
        yield f"breakdown/{dimension.path}/cross", _bucket_rows(dimension, names, buckets[0], buckets[sums])


def _bucket_rows(dimension: Dimension, names: Sequence[str], tokens: Array, sums: Array) -> Table:
    """Rows over the buckets, or one number each where the bucket is in the path."""
    chosen: Any = slice(dimension.buckets) if dimension.buckets else 0
    return {"tokens": tokens[chosen], **{name: row[chosen] for name, row in zip(names, sums, strict=True)}}


def _weighted(named: Named, gap: int) -> Tables:
    names = ("sequences", "moving", "cancelled", "vanishing", "extreme")
    yield f"sequence/{GAPS[gap]}", dict(zip(names, named.slots.of_sequences.cancelled[gap], strict=True))
    if not named.advantages:
        return
    sums = named.slots.sums
    x, (size, square) = sums.tokens[gap], sums.advantages
    yield f"advantage/{GAPS[gap]}", {
        "advantage_excess": x[arrays.ADVANTAGE_EXCESS], "advantage_abs": size, "mass_square": x[arrays.MASS_SQUARE],
        "advantage_square": square,
    }  # fmt: skip
    if gap == TOTAL:
        yield f"advantage/{GAPS[gap]}#updates", {
            "tokens": named.size["tokens"], "bad": x[arrays.BAD], "outward": x[arrays.OUTWARD],
            "outward_square": x[arrays.OUTWARD_SQUARE],
        }  # fmt: skip
    yield f"gradient/{GAPS[gap]}", {"": named.slots.counts.masses[gap, 0]}


def _signature(named: Named) -> Tables:
    sums, totals, present = named.slots.sums, named.slots.totals, named.present
    *middle, exact = sums.regression
    if present & MIDDLE:
        yield f"{PREFIX}/middle", dict(zip(MIDDLE_KEYS, middle, strict=True))
    if present & EXACT:
        yield f"{PREFIX}/middle#exact", {"exact": exact}
    if present & PAIRS:
        heads, tails = named.slots.of_sequences.ends
        values = totals.size[2], *heads, *tails, *sums.neighbours[:2]
        yield f"{PREFIX}/neighbours", dict(zip(NEIGHBOUR_KEYS, values, strict=True))
    for name, bit, counts in zip(("sampling", "old", "difference"), GRIDS, named.slots.counts.grids, strict=True):
        if present & bit:
            yield f"{PREFIX}/grid/{name}", dict(zip(GRID_KEYS, counts, strict=True))


def _anchors(named: Named) -> Tables:
    rows, slots = named.part.rows, named.slots
    for row, k, of_tokens in rows.numbered:
        bounds, differing = (
            (rows.tokens, slots.sums.differing) if of_tokens else (rows.sequences, slots.of_sequences.differing)
        )
        if bounds.anchor[k] >= 0:
            tokens = slots.totals.size[0]
            yield f"anchor/{quote(row.name, safe='')}", {"tokens": tokens, "differing": differing[k]}


def _lengths(named: Named, gap: int) -> Tables:
    for unit, counts in zip(("sequences", "tokens"), named.slots.of_sequences.lengths[gap], strict=True):
        yield f"length/{GAPS[gap]}/{unit}", {"": counts}


def _whatif(named: Named) -> Tables:
    of, totals, part = named.slots.of_sequences, named.slots.totals, named.part
    for c, (gap, score) in enumerate(part.token_cells):
        yield from _measures(gap, score, named, totals.cells[c], totals.by_length[c], named.slots.sums.masses[c])
    for c, (gap, score) in enumerate(part.sequence_cells):
        kept = part.measures[gap][score]
        if "sequences" in kept:
            yield f"whatif/{gap}/{score}/sequences", {"": _by_sign(of.sequences[c], len(CELL_SIGNS), named)}
        if "tokens" in kept:
            yield from _measures(gap, score, named, of.tokens[c], of.by_length[c], of.masses[c])


def _measures(gap: str, score: str, named: Named, tokens: Array, lengths: Array, masses: Array) -> Tables:
    path = f"whatif/{gap}/{score}"
    yield f"{path}/tokens", {"": _by_sign(tokens, len(CELL_SIGNS), named)}
    yield f"{path}/lengths", {"": _by_sign(lengths, len(CELL_SIGNS), named)}
    if named.advantages:
        yield f"{path}/mass", {"": _by_sign(masses, len(CELL_SIGNS), named)}


def _densities(named: Named) -> Tables:
    for gap, banks in zip(DENSE, named.slots.counts.densities, strict=True):
        if named.part.plan.densities and GAPS[gap] in named.part.gaps:
            yield f"density/{GAPS[gap]}", {"": banks[0].reshape(BINS_OF_DENSITY, BINS_OF_DENSITY)}


def whole_tables(values: Mapping[str, Any], parts: Mapping[str, bool]) -> Tables:
    """The tables of numbers by the names of WHOLE; `parts` says which parts of the batch's there are, and `spans`."""
    yield "batch", {row.name: values[row.name] for row in LAYOUT.at("batch").rows}
    for part in ("entropy", "reward", *(table.part for table in SENT_PARTS), "lag"):
        if parts[part]:
            yield f"batch#{part}", {row.name: values[row.name] for row in LAYOUT.at(f"batch#{part}").rows}
    if parts["longest"]:
        yield "longest", {"sequences": values["filled_sequences"]}
        yield "longest/at", {"": NOWHERE}
    if parts["spans"]:
        yield "versions/spans", {"spans": values["spans"], "sequences": values["spanned_sequences"]}
        if parts["lag"]:
            yield "versions/spans#lag", {"lag": values["sequence_lag"]}
            yield "versions/lag", {"": NOWHERE}
