"""What the pass came to -> Arrays: each row of summary.layout from where the pass left it.

Tables are by their key in the layout. Counts and sums of a part are those of its gaps; parts merge as shards do.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from itertools import chain
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.fused import arrays, dimensions, routing, runs
from offpolicy_monitor.fused.arrays import DENOMINATOR, GAPS, MISMATCH, NUMERATOR, STALENESS, TOTAL
from offpolicy_monitor.fused.batch import Batch, Measured, Rows, measured
from offpolicy_monitor.fused.dimensions import Dimension
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.methods.rule import Clip, Drop
from offpolicy_monitor.summary import cells
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.batch import CROSS_ROWS
from offpolicy_monitor.summary.gap import QUANTITIES, SIGNS
from offpolicy_monitor.summary.histogram import BINS
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.tables.breakdown import GAP_KEYS
from offpolicy_monitor.summary.tables.signature import GRID_KEYS, MIDDLE_KEYS, NEIGHBOUR_KEYS, PREFIX
from offpolicy_monitor.vocabulary import EXPERT_IDS, LOGPROBS
from offpolicy_monitor.vocabulary import SIGNS as CELL_SIGNS

Array = NDArray[Any]
Table = dict[str, Any]
Tables = Iterator[tuple[str, Table]]

#: gap -> its p q among Sums.products: mu old, old pi, mu pi.
_PRODUCT: Final = (6, 7, 8)
#: The names of the first of arrays' token sums, in their order, and of the sums over sequences in theirs.
_RATIO_SUMS: Final = (
    "k3_reverse", "js", "ratio", "ratio_excess", "weight", "weight_square", "weight_excess", "weight_excess_square",
    "tail_tokens",
)  # fmt: skip
_SEQUENCE_SUMS: Final = (
    "sequence_k3", "sequence_log_ratio_abs", "log_geometric", "log_geometric_abs", "log_geometric_min",
    "log_geometric_max", "geometric", "geometric_square", "geometric_excess", "geometric_excess_square",
    "inverse_geometric", "log_product", "log_product_min", "log_product_max", "product", "product_square",
    "product_excess", "product_excess_square", "perplexity_numerator", "perplexity_denominator",
    "log_perplexity_numerator", "log_perplexity_denominator",
)  # fmt: skip
_WEIGHTS: Final = ("weight", "weight_square", "weight_excess", "weight_excess_square", "weight_max", "truncated_tokens")
#: Where probabilities add up to less they are summed in float64: float32 holds none below 1e-38 well, which anywhere
#: else are nothing beside the rest.
TINY_PROBABILITIES: Final = 1e-30
CLAMP: Final = 80.0
_KEPT: Final = ("k3_masked", "k3_kept", "log_ratio_square_masked", "log_ratio_square_kept")
_SUSPECTS: Final = ("nonfinite_tokens", "positive_tokens", "exact_zero_tokens", "zero_filled_tokens")


def _folds() -> Array:
    """The bin among LENGTH_BINS of each of TOKEN_BINS."""
    edges = np.concatenate([[-np.inf], cells.TOKEN_BINS.edges, [np.inf]]).clip(-1e9, 1e9)
    found: Array = np.searchsorted(cells.LENGTH_BINS.edges, (edges[1:] + edges[:-1]) / 2)
    return found


#: The bins among LENGTH_BINS that have any of TOKEN_BINS, and the first of those.
_FOLDED, _FIRST = np.unique(_folds(), return_index=True)


class Summarised(NamedTuple):
    """A summary's arrays, the rows that ran, and the parts that it was made of."""

    arrays: Arrays
    rows: Sequence[MethodRow]
    parts: Sequence[Measured]


def summarise(batch: Batch, rows: Sequence[MethodRow], origin: Origin, threads: Executor | None = None) -> Summarised:
    """The arrays of a batch. Rows whose inputs were not sent are left out."""
    source = batch.source
    advantages = batch.has("advantages")
    applicable = Rows.of([row for row in rows if row.gap in batch.gaps and (advantages or not row.needs_advantages)])
    found, buckets = dimensions.of_sequences(source, origin)
    parts = measured(batch, applicable, origin, buckets, threads)
    tables = dict(_of_batch(batch, origin)) | dict(_routing(batch, threads))
    for part in parts:
        tables |= _tables(part, batch, applicable, origin, found)
    unseen = chain(_empty_gaps(batch, tables), _empty_methods(applicable, advantages, tables))
    tables |= dict(unseen)
    gaps = {f"gaps/{gap}": tables[f"gaps/{gap}"] for gap in batch.gaps}
    return Summarised(Arrays.of(LAYOUT, {**gaps, **tables}), applicable.rows, parts)


def _tables(part: Measured, batch: Batch, rows: Rows, origin: Origin, found: Sequence[Dimension]) -> Tables:
    """Parts have no table in common."""
    if part.joint:
        yield "cross", _cross(part)
        yield from _crossed(part, batch, origin, found)
        yield from _anchors(part, rows)
    if part.alone:
        return
    for gap in part.gaps:
        place = GAPS.index(gap)
        yield f"gaps/{gap}", _gap(part, place)
        yield f"histograms/{gap}", _histograms(part, place, batch)
        yield from _weighted(part, place, batch)
        yield from _lengths(part, place)
    yield from _methods(part, rows, batch)
    yield from _breakdowns(part, batch, origin, found)
    yield from _signature(part, batch)
    yield from _whatif(part, batch)


def _tokens(part: Measured) -> int:
    return int(part.tokens.offsets[-1])


def _sequences(part: Measured) -> int:
    return int(np.count_nonzero(np.diff(part.tokens.offsets)))


def _gap(part: Measured, gap: int) -> Table:
    x, totals, filled = part.sums.tokens[gap], part.totals[gap], part.filled[:, gap]
    return {
        **dict(zip(_RATIO_SUMS, x, strict=False)),
        **dict(zip(_SEQUENCE_SUMS, part.of_sequences.gaps[gap], strict=True)),
        "tokens": _tokens(part), "sequences": _sequences(part),
        "log_ratio": totals[arrays.SUM], "log_ratio_abs": totals[arrays.ABS],
        "log_ratio_square": totals[arrays.SQUARE], "log_ratio_deviation": max(x[arrays.DEVIATION], 0.0),
        "log_ratio_min": filled[:, arrays.LEAST].min(), "log_ratio_max": filled[:, arrays.MOST].max(),
        "k3": totals[arrays.K3_SUM], "multiplicative_excess": totals[arrays.GROWTH],
        "exact_tokens": _tokens(part) - x[arrays.CHANGED], "clamped_tokens": x[arrays.CLAMPED],
        **_probabilities(part, gap),
    }  # fmt: skip


def _probabilities(part: Measured, gap: int) -> Table:
    """Sums over p and q; where float32 holds none of them well, they are made again in float64."""
    x, p, (a, b) = part.sums.tokens[gap], part.sums.products, (NUMERATOR[gap], DENOMINATOR[gap])
    if min(p[a], p[b]) < TINY_PROBABILITIES:
        return _tiny_probabilities(*(part.tokens.logprobs[column].astype(np.float64) for column in (a, b)))
    return {
        "probability_diff": x[arrays.DIFFERENCE], "probability_diff_square": x[arrays.DIFFERENCE_SQUARE],
        "probability_diff_max": x[arrays.DIFFERENCE_MAX],
        "p": p[a], "q": p[b], "p_square": p[3 + a], "q_square": p[3 + b], "p_q": p[_PRODUCT[gap]],
    }  # fmt: skip


def _tiny_probabilities(a: Array, b: Array) -> Table:
    p, q = np.exp(np.minimum(a, CLAMP)), np.exp(np.minimum(b, CLAMP))
    difference = np.maximum(p, q) * -np.expm1(-np.abs(a - b))
    return {
        "probability_diff": difference.sum(), "probability_diff_square": difference @ difference,
        "probability_diff_max": difference.max(), "p": p.sum(), "q": q.sum(), "p_square": p @ p, "q_square": q @ q,
        "p_q": p @ q,
    }  # fmt: skip


def _histograms(part: Measured, gap: int, batch: Batch) -> Table:
    counts = part.counts.histograms[gap].reshape(1, 3, BINS), part.of_sequences.histograms[gap]
    rows = np.concatenate(counts)
    return {name: _by_sign(own, len(SIGNS), batch) for name, own in zip(QUANTITIES, rows, strict=True)}


def _by_sign(counts: Array, signs: int, batch: Batch) -> Array:
    """Counts by negative, zero, positive and perhaps mixed -> by all `signs`; the last, unknown, without advantages."""
    whole = np.zeros((signs, *counts.shape[1:]), counts.dtype)
    if batch.has("advantages"):
        whole[: len(counts)] = counts
    else:
        whole[-1] = counts[arrays.NEUTRAL]
    return whole


def _cross(part: Measured) -> Table:
    m, s = part.totals[MISMATCH, arrays.SQUARE], part.totals[STALENESS, arrays.SQUARE]
    sums = zip(CROSS_ROWS, (m, s, part.left.own[:, arrays.PRODUCT].sum()), strict=True)
    return {"tokens": _tokens(part), **{row.name: value for row, value in sums}}


def _methods(part: Measured, rows: Rows, batch: Batch) -> Tables:
    advantages = batch.has("advantages")
    for row, k, of_tokens in rows.numbered:
        if row.gap not in part.gaps:
            continue
        if of_tokens:
            dropped, weights = part.sums.rules[k], part.sums.weights[k]
            masked, touched = part.of_sequences.token_rules[k]
            by_length = part.of_sequences.masked_tokens[k]
        else:
            *dropped, masked, touched = part.of_sequences.rules[k]
            weights, by_length = part.of_sequences.weights[k], part.of_sequences.masked[k]
        low, high, *kept, mass = dropped
        if isinstance(row.rule, Clip):
            x = part.totals[GAPS.index(row.gap)]
            kept = [0.0, x[arrays.K3_SUM], 0.0, x[arrays.SQUARE]]
        path = f"methods/{quote(row.name, safe='')}"
        counts = {"tokens": _tokens(part), "sequences": _sequences(part), "masked_tokens": low + high}
        counts |= {"masked_sequences": masked, "touched_sequences": touched}
        yield path, {**counts, **dict(zip(_KEPT, kept, strict=True))}
        if row.two_sided:
            yield f"{path}#sides", {"masked_low_tokens": low, "masked_high_tokens": high}
        if advantages:
            yield f"{path}#mass", {"advantage_mass": part.sums.advantages[0], "masked_advantage_mass": mass}
        if isinstance(row.rule, Clip):
            yield f"{path}#weights", dict(zip(_WEIGHTS, weights, strict=True))
        else:
            signed = isinstance(row.rule, Drop) and row.rule.signs != "any" and "advantages" in batch.source.a_token
            unit = "tokens" if of_tokens or signed else "sequences"
            yield f"masked/{quote(row.name, safe='')}/{row.gap}/{unit}", {"": by_length}


def _breakdowns(part: Measured, batch: Batch, origin: Origin, found: Sequence[Dimension]) -> Tables:
    for dimension, buckets in _dimensions(part, batch, origin, found):
        for gap in part.gaps:
            first = 1 + len(GAP_KEYS) * GAPS.index(gap)
            columns = buckets[:, first : first + len(GAP_KEYS)]
            yield f"breakdown/{dimension.path}/{gap}", _bucket_rows(dimension, GAP_KEYS, buckets[:, 0], columns)


def _crossed(part: Measured, batch: Batch, origin: Origin, found: Sequence[Dimension]) -> Tables:
    """The cross terms of breakdowns."""
    names = [row.name for row in CROSS_ROWS]
    columns = [3 + len(GAP_KEYS) * MISMATCH, 3 + len(GAP_KEYS) * STALENESS, arrays.CELL - 1]
    for dimension, buckets in _dimensions(part, batch, origin, found):
        yield f"breakdown/{dimension.path}/cross", _bucket_rows(dimension, names, buckets[:, 0], buckets[:, columns])


def _bucket_rows(dimension: Dimension, names: Sequence[str], tokens: Array, columns: Array) -> Table:
    """Rows over the buckets, or one number each where the bucket is in the path."""
    chosen: Any = slice(dimension.buckets) if dimension.buckets else 0
    return {"tokens": tokens[chosen], **{name: columns[chosen, k] for k, name in enumerate(names)}}


def _dimensions(
    part: Measured, batch: Batch, origin: Origin, found: Sequence[Dimension]
) -> Iterator[tuple[Dimension, Array]]:
    yield from zip(dimensions.of_runs(batch.source, origin), part.sums.runs, strict=True)
    yield from zip(found, part.of_sequences.buckets, strict=True)
    if "advantages" in batch.source.a_token:
        yield dimensions.SIGN, part.sums.signs
    if len(part.tokens.logprobs[0]):
        yield dimensions.MU, part.sums.mu


def _weighted(part: Measured, gap: int, batch: Batch) -> Tables:
    names = ("sequences", "moving", "cancelled", "vanishing", "extreme")
    yield f"sequence/{GAPS[gap]}", dict(zip(names, part.of_sequences.cancelled[gap], strict=True))
    if not batch.has("advantages"):
        return
    x, (size, square) = part.sums.tokens[gap], part.sums.advantages
    yield f"advantage/{GAPS[gap]}", {
        "advantage_excess": x[arrays.ADVANTAGE_EXCESS], "advantage_abs": size, "mass_square": x[arrays.MASS_SQUARE],
        "advantage_square": square,
    }  # fmt: skip
    if gap == TOTAL:
        yield f"advantage/{GAPS[gap]}#updates", {
            "tokens": _tokens(part), "bad": x[arrays.BAD], "outward": x[arrays.OUTWARD],
            "outward_square": x[arrays.OUTWARD_SQUARE],
        }  # fmt: skip
    yield f"gradient/{GAPS[gap]}", {"": part.counts.masses[gap].sum(0)}


def _signature(part: Measured, batch: Batch) -> Tables:
    if "mismatch" not in part.gaps:
        return
    *middle, exact = part.sums.regression
    if middle[0]:
        yield f"{PREFIX}/middle", dict(zip(MIDDLE_KEYS, middle, strict=True))
    if exact:
        yield f"{PREFIX}/middle#exact", {"exact": exact}
    pairs = _tokens(part) - _sequences(part)
    if pairs:
        heads, tails = part.sums.neighbours[2:] - part.of_sequences.ends
        values = pairs, *heads, *tails, *part.sums.neighbours[:2]
        yield f"{PREFIX}/neighbours", dict(zip(NEIGHBOUR_KEYS, values, strict=True))
    for name, counts in zip(("sampling", "old", "difference"), part.counts.grids, strict=True):
        if counts.any():
            yield f"{PREFIX}/grid/{name}", dict(zip(GRID_KEYS, counts, strict=True))


def _anchors(part: Measured, rows: Rows) -> Tables:
    for row, k, of_tokens in rows.numbered:
        bounds, differing = (
            (rows.tokens, part.sums.differing) if of_tokens else (rows.sequences, part.of_sequences.differing)
        )
        if bounds.anchor[k] >= 0:
            yield f"anchor/{quote(row.name, safe='')}", {"tokens": _tokens(part), "differing": differing[k]}


def _lengths(part: Measured, gap: int) -> Tables:
    for unit, counts in zip(("sequences", "tokens"), part.of_sequences.lengths[gap], strict=True):
        yield f"length/{GAPS[gap]}/{unit}", {"": counts}


def _whatif(part: Measured, batch: Batch) -> Tables:
    for c, (gap, score) in enumerate(part.token_cells):
        counts = part.counts.cells[c]
        by_length = np.zeros((*counts.shape[:2], cells.LENGTH_BINS.number), counts.dtype)
        by_length[..., _FOLDED] = np.add.reduceat(counts, _FIRST, axis=-1)
        yield from _measures(gap, score, batch, counts.sum(1), by_length, part.sums.masses[c])
    of = part.of_sequences
    for c, (gap, score) in enumerate(part.sequence_cells):
        kept = part.measures[gap][score]
        if "sequences" in kept:
            yield f"whatif/{gap}/{score}/sequences", {"": _by_sign(of.sequences[c], len(CELL_SIGNS), batch)}
        if "tokens" in kept:
            yield from _measures(gap, score, batch, of.tokens[c], of.by_length[c], of.masses[c])


def _measures(gap: str, score: str, batch: Batch, tokens: Array, lengths: Array, masses: Array) -> Tables:
    path = f"whatif/{gap}/{score}"
    yield f"{path}/tokens", {"": _by_sign(tokens, len(CELL_SIGNS), batch)}
    yield f"{path}/lengths", {"": _by_sign(lengths, len(CELL_SIGNS), batch)}
    if batch.has("advantages"):
        yield f"{path}/mass", {"": _by_sign(_rounded(masses), len(CELL_SIGNS), batch)}


def _rounded(masses: Array) -> Array:
    """|A| in MASS_BITS bits a cell."""
    mantissas, exponents = np.frexp(masses)
    rounded: Array = np.ldexp(np.round(mantissas * 2.0**cells.MASS_BITS), exponents - cells.MASS_BITS)
    return rounded


def _routing(batch: Batch, threads: Executor | None) -> Tables:
    mu, old, pi = (batch.columns.get(name, np.zeros(0, np.float32)) for name in LOGPROBS)
    return routing.counted((mu, old, pi), [batch.source.columns.get(name) for name in EXPERT_IDS], threads)


def _of_batch(batch: Batch, origin: Origin) -> Tables:
    """What was sent, and how old it is."""
    source = batch.source
    empty = int(np.count_nonzero(np.diff(source.offsets) == 0))
    counts = {"tokens": source.tokens, "sequences": source.sequences, "empty_sequences": empty}
    yield "batch", {**counts, **dict(zip(_SUSPECTS, batch.suspects, strict=True))}
    for name, unit, column in (("entropy", "tokens", "entropy"), ("reward", "sequences", "rewards")):
        if column in source.columns:
            values = source.columns[column]
            finite = values[np.isfinite(values)]
            if len(finite):
                yield f"batch#{name}", {f"{name}_{unit}": len(finite), name: finite.sum(dtype=np.float64)}
    yield from _versions(source, origin)


def _versions(source: RaggedBatch, origin: Origin) -> Tables:
    sent = source.columns.get("policy_versions")
    if sent is None or not source.tokens:
        return
    values = np.require(sent, np.int64, ("C", "A", "W"))
    a_token = "policy_versions" in source.a_token
    spans, sequences, tokens, lag, largest, means = runs.version_sums(
        source.offsets, values, a_token, origin.policy_version or 0
    )
    if not sequences:
        return
    yield "versions/spans", {"spans": spans, "sequences": sequences}
    if origin.policy_version is not None:
        yield "batch#lag", {"lag_tokens": tokens, "lag": lag, "lag_max": largest}
        known = means[~np.isnan(means)]
        yield "versions/spans#lag", {"lag": known.sum()}
        yield "versions/lag", {"": np.unique(np.floor(known).astype(np.int64), return_counts=True)}


def _empty_gaps(batch: Batch, tables: dict[str, Table]) -> Tables:
    """The gaps whose log-probs were sent, and of which no token is valid."""
    for gap in batch.gaps:
        for path in (f"gaps/{gap}", f"histograms/{gap}"):
            if path not in tables:
                yield path, _nothing(path)


def _empty_methods(rows: Rows, advantages: bool, tables: dict[str, Table]) -> Tables:
    """The rows that saw no token."""
    for row in rows.rows:
        path = f"methods/{quote(row.name, safe='')}"
        if path not in tables:
            yield path, _nothing(path)
            if row.two_sided:
                yield f"{path}#sides", _nothing(f"{path}#sides")


def _nothing(key: str) -> Table:
    """The rows of a table before anything is merged into them."""
    nothing = {"min": np.inf, "max": -np.inf}
    return {row.name: nothing.get(row.merge, 0) for row in LAYOUT.at(key).rows}
