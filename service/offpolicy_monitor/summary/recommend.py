"""Thresholds for a wanted mask rate, how sure they are, and what they would do to answers of twice the length.

Reads the what-if tables of several steps; the steps are resampled to tell chance from drift between them. It knows
curves and cells; which of them a run uses it is told.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.methods.catalogue import METHODS
from offpolicy_monitor.methods.curve import OUTWARD_SCORES, SECOND_MOMENT, SEQUENCE_SCORES, Curve
from offpolicy_monitor.summary.cells import SEQUENCE_BINS, TOKEN_BINS, Bins, Floats
from offpolicy_monitor.summary.method import path_of
from offpolicy_monitor.summary.second_moment import counts_by_magnitude, threshold_for
from offpolicy_monitor.summary.stacked import Stacked
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.tables.whatif import are_kept, beyond
from offpolicy_monitor.vocabulary import SIGNS, UNKNOWN

RESAMPLES: Final = 200
INTERVAL: Final = (2.5, 97.5)  # per cent


class Sample:
    """Steps from which thresholds are recommended; what several curves read of them is read once."""

    def __init__(self, summaries: Sequence[StepSummary]) -> None:
        self.summaries = summaries
        self.tables: Final = Stacked([summary.arrays for summary in summaries])
        self._drawn: dict[tuple[str, str, tuple[int, ...] | None], Drawn] = {}
        self._kept: dict[tuple[str, str], NDArray[np.bool_]] = {}

    def kept(self, gap: str, curve: Curve) -> NDArray[np.bool_]:
        """[steps]: which of them have the curve's tables."""
        key = gap, curve.score
        if key not in self._kept:
            self._kept[key] = are_kept(self.tables, gap, curve)
        return self._kept[key]

    def drawn(self, gap: str, curve: Curve) -> "Drawn":
        """What the rule looks at, of the steps that have the curve's tables."""
        key = gap, curve.score, curve.signs
        if key not in self._drawn:
            self._drawn[key] = self._draw(gap, curve)
        return self._drawn[key]

    def _draw(self, gap: str, curve: Curve) -> "Drawn":
        path = f"whatif/{gap}/{curve.score}/tokens"
        counts = self.tables.rows(path, (len(SIGNS), _bins(curve).number))[self.kept(gap, curve)]
        known = counts if curve.signs is None else counts[:, :UNKNOWN]
        looked_at = counts[:, list(curve.signs) if curve.signs else slice(None)].sum(1)
        weights = _weights(len(counts))
        return Drawn(weights @ looked_at, weights @ known.sum((1, 2)))


@dataclass(frozen=True)
class Drawn:
    """Draws with replacement, all steps once each first: `looked_at` [draws, bins] tokens by score that a rule looks
    at, and `whole` [draws], all that its rate is a share of."""

    looked_at: Floats
    whole: Floats


def recommend(sample: Sample, gap: str, curve: Curve, target: float) -> dict[str, Any] | None:
    """The threshold at which the curve drops the share `target` of the tokens; None where none does.

    `between` are the edges of the histogram next to `threshold`, whose shares are known exactly: one drops more than
    the target and the other less. Between `low` and `high` lie 95 % of the thresholds that resampled steps give (200
    draws with replacement, the same at every call). `masked_token_fraction_at_double_length` is what that threshold
    would drop of sequences twice as long whose tokens drift as these do, independently of each other: a mean keeps its
    centre and varies 1 / sqrt(2) as much, a sum doubles its centre and varies sqrt(2) as much, an extreme has two
    tries; a rule on tokens drops the same share.
    """
    steps = [summary for summary, kept in zip(sample.summaries, sample.kept(gap, curve), strict=True) if kept]
    if not steps:
        return None
    between: list[float] | None = None
    if curve.scale is SECOND_MOMENT:
        counts = np.stack([_cut_among(summary, gap, curve) for summary in steps])
        # The target is a share of all tokens, whatever the rule cuts among.
        share = target * _tokens(steps, gap) / max(float(counts.sum()), 1.0)
        if share >= 1:
            return None
        thresholds, longer = threshold_for(_weights(len(steps)) @ counts, share), target
    else:
        bins, drawn = _bins(curve), sample.drawn(gap, curve)
        bounds = _bounds(bins, drawn, curve, target)
        if math.isnan(bounds[0]):
            return None
        thresholds = np.asarray([curve.scale.threshold(float(bound)) for bound in bounds])
        between = sorted(curve.scale.threshold(edge) for edge in _neighbours(bins, float(bounds[0])))
        longer = _at_double_length(bins, drawn, curve, float(bounds[0]), target)
    low, high = np.nanpercentile(thresholds[1:], INTERVAL) if len(steps) > 1 else (thresholds[0], thresholds[0])
    return {
        "threshold": float(thresholds[0]),
        "low": float(low),
        "high": float(high),
        "between": between,
        "masked_token_fraction": target,
        "masked_token_fraction_at_double_length": longer,
    }


def _bins(curve: Curve) -> Bins:
    return TOKEN_BINS if curve.whole else SEQUENCE_BINS


def _cut_among(summary: StepSummary, gap: str, curve: Curve) -> Floats:
    """Tokens by |d| among which a rule cuts."""
    return counts_by_magnitude(summary.gaps[gap], curve.score in OUTWARD_SCORES)


def _tokens(steps: Sequence[StepSummary], gap: str) -> float:
    return sum(float(summary.gaps[gap].sums.get("tokens", 0)) for summary in steps)


@lru_cache(16)
def _weights(steps: int) -> Floats:
    """[1 + RESAMPLES, steps]: how often each step counts; once each in the first row."""
    source = np.random.default_rng(0)
    drawn = source.multinomial(steps, np.full(steps, 1 / steps), RESAMPLES) if steps > 1 else np.zeros((0, 1))
    weights: Floats = np.concatenate([np.ones((1, steps)), drawn], dtype=np.float64)
    weights.setflags(write=False)
    return weights


def _bounds(bins: Bins, drawn: Drawn, curve: Curve, target: float) -> Floats:
    """[draws]: the bound beyond which the wanted share lies; NaN where none has as much beyond it.

    Between edges the scores are taken to be normal: bounds are interpolated by the quantiles of the shares.
    """
    edges = _edges(bins, curve)
    sign = -1 if curve.above is False else 1
    whole = drawn.whole
    dropped, _ = beyond(bins, drawn.looked_at, curve.above, sign * edges)
    wanted = target * whole
    index = (dropped > wanted[:, None]).sum(1)
    bounds = np.full(len(whole), np.nan)
    bounds[index == len(edges)] = edges[-1]
    inner = np.flatnonzero((index > 0) & (index < len(edges)))
    shares = (dropped[inner, index[inner] - 1], wanted[inner], dropped[inner, index[inner]])
    before, between, after = (_quantiles(share / whole[inner], whole[inner]) for share in shares)
    part = (between - before) / (after - before)
    bounds[inner] = edges[index[inner] - 1] + part * (edges[index[inner]] - edges[index[inner] - 1])
    return sign * bounds


def _neighbours(bins: Bins, bound: float) -> list[float]:
    index = int(np.searchsorted(bins.edges, bound))
    return [float(edge) for edge in bins.edges[max(index - 1, 0) : index + 1]]


def _quantiles(shares: Floats, whole: Floats) -> Floats:
    """The normal quantile above which each share lies; none and all are taken for half a token."""
    least, quantile = 0.5 / whole, NormalDist().inv_cdf
    return -np.asarray([quantile(p) for p in np.clip(shares, least, 1 - least).tolist()])


def _edges(bins: Bins, curve: Curve) -> Floats:
    above, below = bins.magnitudes, -bins.edges[: bins.zero][::-1]
    if curve.above is None:
        return np.intersect1d(above, below)
    return above if curve.above else below


def _at_double_length(bins: Bins, drawn: Drawn, curve: Curve, bound: float, target: float) -> float:
    if curve.whole:
        return target
    made, counts = SEQUENCE_SCORES[curve.score], drawn.looked_at[0]
    if made == "extreme":
        return 1 - (1 - target) ** 2
    centre = _mean(bins, counts)
    moved = centre + ((bound - centre) * math.sqrt(2) if made == "mean" else (bound - 2 * centre) / math.sqrt(2))
    dropped, _ = beyond(bins, counts, curve.above, np.asarray([moved]))
    return float(min(1.0, dropped[0] / drawn.whole[0]))


def _mean(bins: Bins, counts: Floats) -> float:
    """The mean score, each value in the middle of its bin, the unbounded at their edge."""
    edges = bins.edges
    middles = np.concatenate([edges[:1], (edges[1:] + edges[:-1]) / 2, edges[-1:]])
    return float(counts @ middles / max(counts.sum(), 1))


#: Below and above these shares of the tokens a preset is worth a word; docs/methods.md.
INERT: Final = 1e-5
SATURATED: Final = 0.5


def preset_states(sample: Sample, names: Collection[str | None] | None = None) -> list[dict[str, Any]]:
    """What each row of the newest step has dropped over these steps, and whether it does nothing or too much; with
    names those rows alone.

    `state` is `inert` (below 1e-5 of the tokens), `saturated` (above one half) or `active`; rows that reweight count
    what they truncate. Steps whose row of that name had other thresholds are left out.
    """
    newest = sample.summaries[-1].specs if sample.summaries else {}
    wanted = [name for name in newest if names is None or name in names]
    return [state for name in wanted if (state := _state(name, sample))]


def _state(name: str, sample: Sample) -> dict[str, Any] | None:
    spec = sample.summaries[-1].specs[name]
    same = np.array([summary.specs.get(name) == spec for summary in sample.summaries])
    tokens = int(sample.tables.numbers(path_of(name), "tokens") @ same)
    if spec is None or not tokens:
        return None
    reweights = METHODS[spec["method"]].reweights
    counted = "truncated_tokens" if reweights else "masked_tokens"
    dropped = int(sample.tables.numbers(path_of(name), counted) @ same)
    share = dropped / tokens
    state = "inert" if share < INERT else "saturated" if share > SATURATED else "active"
    figure = "truncated_token_fraction" if reweights else "masked_token_fraction"
    verb = "truncated" if reweights else "dropped"
    steps = int(same.sum())
    words = f"{name} {verb} {dropped:,.0f} of {tokens:,.0f} tokens ({share:.3g}) in {steps} steps{_VERDICTS[state]}"
    return {"name": name, "state": state, **spec, figure: share, "steps": steps, "summary": words}


_VERDICTS: Final[Mapping[str, str]] = {
    "inert": ": it changes nothing on this run, and its threshold guards against nothing seen so far.",
    "saturated": ": it takes most of the data away; loosen it, or mend what it reacts to.",
    "active": ".",
}
