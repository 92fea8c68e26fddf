"""What a rule would drop as a function of its threshold, read off the tables of any steps.

A curve counts what lies beyond each bound (summary.cells) and divides by all; where the tables hold no edge there, the
error that is stated is the most it can be. It knows curves and cells; rules themselves it does not.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.methods.catalogue import MEASURES
from offpolicy_monitor.methods.curve import OUTWARD_SCORES, SECOND_MOMENT, TOKEN_SCORES, Curve
from offpolicy_monitor.summary import cells
from offpolicy_monitor.summary.cells import LENGTH_BINS, LENGTHS, SEQUENCE_BINS, TOKEN_BINS, Bins, Floats
from offpolicy_monitor.summary.kind import Kind
from offpolicy_monitor.summary.rows import NAMED, OF_GAP, Row, Table, count, magnitude
from offpolicy_monitor.summary.second_moment import cutoffs
from offpolicy_monitor.summary.stacked import Stacked
from offpolicy_monitor.vocabulary import SIGNS, UNKNOWN

if TYPE_CHECKING:
    from offpolicy_monitor.summary.step import StepSummary

#: Measure of the tables -> what its dropped share is called, after `masked_` or `truncated_`.
FIGURES: Final[Mapping[str, str]] = {
    "tokens": "token_fraction",
    "sequences": "sequence_fraction",
    "mass": "advantage_mass",
}

_CELLS: Final = ((SEQUENCE_BINS.number, "sequences"), (TOKEN_BINS.number, "tokens"))


def _rows(score: str) -> Iterator[Row]:
    """The measures of a score: a row by sign of A and bin each; `lengths` by sign, length group and coarse bin."""
    own, unit = _CELLS[score in TOKEN_SCORES]
    signs = len(SIGNS)
    for measure in sorted(MEASURES[score]):
        bins = SEQUENCE_BINS.number if measure == "sequences" else own
        if measure == "mass":
            yield magnitude(measure, "|A| by sign and bin", signs, bins)
        else:
            yield count(measure, f"{measure} by sign and bin", signs, bins, total=f"gaps/{{gap}}/{measure}")
        if measure == "tokens":
            shape = signs, LENGTHS, LENGTH_BINS.number
            yield count("lengths", f"{unit} by sign, length and coarse bin", *shape, total=f"gaps/{{gap}}/{unit}")


#: The stored version that first had the scores of tokens that move outward.
OUTWARD_SINCE: Final = 5

#: A table per measure: gaps differ in the measures that their methods need of a score.
TABLES: Final = tuple(
    Table(
        f"whatif/{{gap}}/{score}/{row.name}",
        (replace(row, name=""),),
        "what rules look at",
        needs=(OF_GAP, "advantages") if row.name == "mass" or score.startswith(OUTWARD_SCORES) else (OF_GAP,),
        summed_from="advantages" if row.name == "mass" else "logprobs",
        since=OUTWARD_SINCE if score.startswith(OUTWARD_SCORES) else NAMED,
    )
    for score in MEASURES
    for row in _rows(score)
)

#: Of |A|, which cells keep in 8 bits.
MASS_ERROR: Final = 2.0 ** -(cells.MASS_BITS + 1)


@dataclass(frozen=True, eq=False)
class Kept:
    """What the tables of n steps, or of n merges of steps, keep for a curve.

    `own`: measure -> [n, signs, bins]; `by_length` the rule's own unit [n, signs, LENGTHS, LENGTH_BINS];
    `sequences_by_length` [n, LENGTHS].
    """

    own: Mapping[str, Floats]
    by_length: Floats
    sequences_by_length: Floats

    @classmethod
    def of(cls, tables: Stacked, gap: str, curve: Curve, whole: bool) -> "Kept":
        """What these tables keep, each by itself, or the `whole` of them as one."""

        def kept(score: str, measure: str, *shape: int) -> Floats:
            name = f"whatif/{gap}/{score}/{measure}"
            return tables.total(name, shape)[None] if whole else tables.rows(name, shape)

        def lengths(score: str) -> Floats:
            return kept(score, "lengths", len(SIGNS), LENGTHS, LENGTH_BINS.number)

        bins = TOKEN_BINS if curve.whole else SEQUENCE_BINS
        of_sequences = curve.whole or curve.score, "sequences", len(SIGNS), SEQUENCE_BINS.number
        asked = {measure: (curve.score, measure, len(SIGNS), bins.number) for measure in FIGURES}
        own = {measure: kept(*each) for measure, each in {**asked, "sequences": of_sequences}.items()}
        return cls(own, lengths(curve.score), lengths("log_geometric_ratio").sum((1, 3)))


@dataclass(frozen=True, eq=False)
class Drops:
    """What lies beyond m bounds, by measure: dropped and error [signs, m], all [signs]; and by length group.

    `dropped_by_length` [LENGTHS, m], `all_by_length` [LENGTHS] count the rule's own unit, `sequences_by_length`
    [LENGTHS] sequences.
    """

    dropped: Mapping[str, Floats]
    errors: Mapping[str, Floats]
    whole: Mapping[str, Floats]
    dropped_by_length: Floats
    all_by_length: Floats
    sequences_by_length: Floats


def whatif_curve(
    summaries: Sequence["StepSummary"], gap: str, curve: Curve, thresholds: Sequence[float] | None, weights: bool
) -> dict[str, Any]:
    """One curve over the merge of the steps that keep it, at these thresholds or, if None, where tables have edges.

    `threshold` [m]; `masked_token_fraction`, `masked_sequence_fraction`, `masked_advantage_mass` [m], each a share of
    all valid tokens, non-empty sequences, and the sum of |A|, null without any; `error` [m], the most by which any of
    the three is off, and `max_error`, the largest of them; `by_advantage_sign` the same three within tokens (sequences)
    of a sign; `by_length_quartile` the share of the rule's own unit within each quarter of the sequences by length.
    Rules that reweight mask nothing; theirs are called `truncated_`.
    """
    tables = Stacked([summary.arrays for summary in summaries])
    kept = are_kept(tables, gap, curve)
    if kept.any() and not kept.all():
        summaries = [summary for summary, is_kept in zip(summaries, kept, strict=True) if is_kept]
        tables = Stacked([summary.arrays for summary in summaries])
    if thresholds is None:
        thresholds = _default_thresholds(tables, gap, curve)
    drops = _drops_at(summaries, tables, gap, curve, np.asarray(thresholds, np.float64))
    seen = _seen(curve)
    prefix = "truncated" if weights else "masked"
    figures = _figures(drops, seen, prefix)
    errors = np.max([_error(drops, seen, measure) for measure in FIGURES], axis=0) if len(thresholds) else np.zeros(0)
    nothing = {f"masked_{name}": [0.0] * len(thresholds) for name in FIGURES.values()} if weights else {}
    return {
        "threshold": list(map(float, thresholds)),
        **nothing,
        **figures,
        "error": errors.tolist(),
        "max_error": float(errors.max(initial=0.0)),
        "by_advantage_sign": _by_sign(drops, curve, prefix),
        "by_length_quartile": _by_quartile(drops),
    }


def are_kept(tables: Stacked, gap: str, curve: Curve) -> NDArray[np.bool_]:
    """[n]: of which steps the tables have what the curve counts, of all tokens: a shard that was measured before there
    was such a table, or a row that asked for it, has none, and its step would be told by its other shards."""
    path, bins = f"whatif/{gap}/{curve.score}/tokens", TOKEN_BINS if curve.whole else SEQUENCE_BINS
    found = tables.has(path)
    if found.any():
        found &= tables.rows(path, (len(SIGNS), bins.number)).sum((1, 2)) == tables.numbers(f"gaps/{gap}", "tokens")
    return found


def _drops_at(summaries: Sequence["StepSummary"], tables: Stacked, gap: str, curve: Curve, thresholds: Floats) -> Drops:
    """A second moment is cut in each step by itself, other rules in all of them at once."""
    if curve.scale is not SECOND_MOMENT:
        bounds = np.asarray([[curve.scale.bound(float(t)) for t in thresholds]])
        kept = Kept.of(tables, gap, curve, whole=True)
        return _drops(kept, curve, bounds, *_beyond(kept, curve, bounds))
    measured = [summary for summary in summaries if gap in summary.gaps]
    kept = Kept.of(Stacked([summary.arrays for summary in measured]), gap, curve, whole=False)
    outward = curve.score in OUTWARD_SCORES
    cuts = [cutoffs(summary.gaps[gap], thresholds, outward) for summary in measured]
    estimate, low, high = (
        np.stack([cut[index] for cut in cuts]) if cuts else np.zeros((0, len(thresholds))) for index in range(3)
    )
    (dropped, _), (most, above), (least, below) = (_beyond(kept, curve, bounds) for bounds in (estimate, low, high))
    errors = {
        name: np.maximum(most[name] + above[name] - dropped[name], dropped[name] - least[name] + below[name])
        for name in FIGURES
    }
    return _drops(kept, curve, estimate, dropped, errors)


def _drops(
    kept: Kept, curve: Curve, bounds: Floats, dropped: Mapping[str, Floats], errors: Mapping[str, Floats]
) -> Drops:
    """The sums over the n; bounds [n, m], dropped and errors [n, signs, m]."""
    bins, unit = (TOKEN_BINS, "tokens") if curve.whole else (SEQUENCE_BINS, "sequences")
    looked_at = _looked_at(curve)
    shares = _shares(bins, (kept.own[unit] * looked_at).sum(1, keepdims=True), curve.above, bounds)
    return Drops(
        {measure: counts.sum(0) for measure, counts in dropped.items()},
        {measure: counts.sum(0) for measure, counts in errors.items()},
        {measure: counts.sum(-1).sum(0) for measure, counts in kept.own.items()},
        ((kept.by_length * looked_at[..., None]).sum(1) @ shares).sum(0),
        kept.by_length.sum((1, 3)).sum(0),
        kept.sequences_by_length.sum(0),
    )


def _beyond(kept: Kept, curve: Curve, bounds: Floats) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """What lies beyond bounds [n, m], by measure, and the most it is off by: [n, signs, m]."""
    dropped, errors = {}, {}
    for measure, counts in kept.own.items():
        side = True if measure == "sequences" and curve.above is None and curve.whole else curve.above
        bins = SEQUENCE_BINS if measure == "sequences" or not curve.whole else TOKEN_BINS
        dropped[measure], errors[measure] = beyond(bins, counts * _looked_at(curve), side, bounds)
    return dropped, errors


def _looked_at(curve: Curve) -> Floats:
    """[signs, 1]: 1 where the rule looks at a sign."""
    looked_at = np.zeros((len(SIGNS), 1))
    looked_at[list(curve.signs) if curve.signs else slice(None)] = 1
    return looked_at


def beyond(bins: Bins, counts: Floats, above: bool | None, bounds: Floats) -> tuple[Floats, Floats]:
    """What lies above the bounds, below them (False), or beyond +-bounds (None), and the most it is off by."""
    if above is None:
        (high, high_error), (low, low_error) = bins.above(counts, bounds), bins.below(counts, -bounds)
        return high + low, high_error + low_error
    return bins.above(counts, bounds) if above else bins.below(counts, bounds)


def _shares(bins: Bins, counts: Floats, above: bool | None, bounds: Floats) -> Floats:
    """[n, LENGTH_BINS, m]: the share of each coarse bin that lies beyond the bounds, as finer counts have it.

    counts [n, 1, number], bounds [n, m]. What lies above the larger of an edge and a bound lies above one of the two:
    each is looked up once.
    """
    edges = np.concatenate([[-np.inf], LENGTH_BINS.edges, [np.inf]])
    above_edge = bins.above(counts, edges)[0].swapaxes(1, 2)
    whole = above_edge[:, :-1] - above_edge[:, 1:]
    inside = np.zeros((*whole.shape[:2], bounds.shape[-1]))
    if above is not False:
        higher = np.where(edges[:, None] > bounds[:, None], above_edge, bins.above(counts, bounds)[0])
        inside += higher[:, :-1] - higher[:, 1:]
    if above is not True:
        limits = bounds if above is False else -bounds
        below_edge = bins.below(counts, edges)[0].swapaxes(1, 2)
        lower = np.where(edges[:, None] < limits[:, None], below_edge, bins.below(counts, limits)[0])
        inside += lower[:, 1:] - lower[:, :-1]
    return np.divide(inside, whole, out=np.zeros_like(inside), where=whole > 0).clip(0, 1)


def _seen(curve: Curve) -> list[int]:
    """The signs that are in the denominators: a rule on signs knows nothing of tokens without advantages."""
    return [sign for sign in range(len(SIGNS)) if curve.signs is None or sign != UNKNOWN]


def _figures(drops: Drops, signs: Sequence[int], prefix: str) -> dict[str, list[float | None]]:
    return {f"{prefix}_{name}": _fractions(drops, signs, measure) for measure, name in FIGURES.items()}


def _fractions(drops: Drops, signs: Sequence[int], measure: str) -> list[float | None]:
    whole, dropped = drops.whole[measure][list(signs)].sum(), drops.dropped[measure][list(signs)].sum(0)
    return (dropped / whole).clip(0, 1).tolist() if whole else [None] * len(dropped)


def _error(drops: Drops, signs: Sequence[int], measure: str) -> Floats:
    whole, errors = drops.whole[measure][signs].sum(), drops.errors[measure][signs].sum(0)
    rounding = MASS_ERROR if measure == "mass" else 0.0
    return errors / whole + rounding * (drops.dropped[measure][signs].sum(0) > 0) if whole else np.zeros_like(errors)


def _by_sign(drops: Drops, curve: Curve, prefix: str) -> dict[str, Any]:
    present = [sign for sign in _seen(curve) if drops.whole["tokens"][sign] or drops.whole["sequences"][sign]]
    return {SIGNS[sign]: _figures(drops, [sign], prefix) for sign in present if sign != UNKNOWN}


def _by_quartile(drops: Drops) -> dict[str, list[float | None]]:
    """A length group that two quartiles share counts in both, in proportion."""
    ends = np.append(0.0, np.cumsum(drops.sequences_by_length))
    if not ends[-1]:
        return {}
    limits = ends[-1] * np.arange(5) / 4
    answer = {}
    for quartile in range(4):
        inside = np.minimum(ends[1:], limits[quartile + 1]) - np.maximum(ends[:-1], limits[quartile])
        parts = np.divide(inside.clip(min=0), drops.sequences_by_length, out=np.zeros(LENGTHS), where=np.diff(ends) > 0)
        whole, dropped = parts @ drops.all_by_length, parts @ drops.dropped_by_length
        answer[str(quartile + 1)] = (dropped / whole).clip(0, 1).tolist() if whole else [None] * dropped.shape[-1]
    return answer


def _default_thresholds(tables: Stacked, gap: str, curve: Curve) -> list[float]:
    """The edges among which the scores lie, as thresholds, ascending."""
    bins = TOKEN_BINS if curve.whole else SEQUENCE_BINS
    counts = tables.total(f"whatif/{gap}/{curve.score}/tokens", (len(SIGNS), bins.number))
    filled = np.flatnonzero(counts.sum(0))
    if not len(filled):
        return []
    reach = np.abs(bins.edges[np.clip([filled[0] - 1, filled[-1]], 0, len(bins.edges) - 1)])
    above, below = bins.magnitudes, -bins.edges[: bins.zero][::-1]
    if curve.above is None:
        edges = np.intersect1d(above[above <= reach.max()], below)
    else:
        edges = above[above <= reach[1]] if curve.above else below[below <= reach[0]]
    if curve.scale is SECOND_MOMENT:
        return [float(edge) ** 2 for edge in edges]
    sign = -1 if curve.above is False else 1
    return sorted(curve.scale.threshold(sign * float(edge)) for edge in edges)


KIND: Final = Kind("whatif", TABLES, measured="offpolicy_monitor.measure.whatif", ingested=True)
