"""Rules as data: what a row compares, at its thresholds. Whatever computes, in torch or not, reads them from here.

A rule is made of curves (methods.curve). Most are bands on scores; where the bound depends on all tokens of a request
it is a Cut. Plain data: no torch.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal

from offpolicy_monitor.methods.curve import OUTWARD_SCORES, SECOND_MOMENT, SEQUENTIAL_SCORES, TOKEN_SCORES, Curve, Given
from offpolicy_monitor.vocabulary import NEGATIVE, POSITIVE, ZERO

#: Which tokens a band drops: whatever their advantage; below it those with A < 0 and above it those with A > 0; or the
#: same, with A == 0 counted as negative.
Signs = Literal["any", "apart", "apart_zero_low"]
#: Of each, the signs of A (vocabulary) of what is dropped above a band, and of what is dropped below.
DROPPED_SIGNS: Final[Mapping[Signs, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "any": ((NEGATIVE, ZERO, POSITIVE), (NEGATIVE, ZERO, POSITIVE)),
    "apart": ((POSITIVE,), (NEGATIVE,)),
    "apart_zero_low": ((POSITIVE,), (NEGATIVE, ZERO)),
}

#: What computes looks at no more bands of one rule.
MOST_BANDS: Final = 2


@dataclass(frozen=True)
class Band:
    """Keeps lower <= score <= upper; what has no bound is infinite. `given` is what the score depends on."""

    score: str
    lower: float = -math.inf
    upper: float = math.inf
    given: Given = ()


@dataclass(frozen=True)
class Drop:
    """Drops a token, or a sequence if the scores are of sequences, that is outside any of the bands.

    Where `signs` look at A and advantages are those of tokens, a band of a sequence's score drops its tokens by their
    own. `sides` says whether what lies below and above is told apart in the figures. What is kept is weighed with
    exp(score) of `weight`, a score of sequences, if there is one. One or two bands, of tokens all or of sequences all:
    ValueError for others, which nothing computes.
    """

    bands: tuple[Band, ...]
    signs: Signs = "any"
    sides: bool = False
    weight: str = ""

    def __post_init__(self) -> None:
        if not 0 < len(self.bands) <= MOST_BANDS or len({band.score in TOKEN_SCORES for band in self.bands}) != 1:
            raise ValueError(f"a rule has one or two bands, of tokens all or of sequences all; got {self.bands}")

    @property
    def of_tokens(self) -> bool:
        """Whether the scores are those of tokens."""
        return all(band.score in TOKEN_SCORES for band in self.bands)

    @property
    def of_each_token(self) -> bool:
        """Whether a token's own log-probs and advantage decide about it, whatever the others of its sequence are."""
        return self.of_tokens and not any(band.score in SEQUENTIAL_SCORES for band in self.bands)


@dataclass(frozen=True)
class Clip:
    """Drops nothing: weight = clip(r, lower, upper), r = exp(score); outside the band it was changed.

    With `within`, the weight of what lies outside that band is 0.
    """

    band: Band
    lower: float = -math.inf
    upper: float = math.inf
    within: Band | None = None
    signs: ClassVar[Signs] = "any"

    @property
    def bands(self) -> tuple[Band, ...]:
        """What is out of it was changed."""
        return (self.band,)

    @property
    def of_tokens(self) -> bool:
        """Whether r is that of tokens."""
        return self.band.score in TOKEN_SCORES


@dataclass(frozen=True)
class Cut:
    """Drops the tokens of largest score^2 of a whole request until the mean of the rest is at most `mean_square`.

    Of an outward score, among the tokens that have one, and the mean is theirs.
    """

    score: str
    mean_square: float
    signs: ClassVar[Signs] = "any"
    bands: ClassVar[tuple[Band, ...]] = ()
    of_tokens: ClassVar[bool] = True


Rule = Drop | Clip | Cut


def decides_tokens(rule: Rule, advantages_per_token: bool) -> bool:
    """Whether a rule decides about tokens, and not about whole sequences: it does where it looks at A of each."""
    return rule.of_tokens or (advantages_per_token and rule.signs != "any")


def looks_ahead(rule: Rule) -> bool:
    """Whether a rule on tokens decides about one only when all of its sequence, or of the request, are known.

    Outward scores are among them, since no preset compares them and the first look at a token does not make them.
    """
    return isinstance(rule, Cut) or (isinstance(rule, Drop) and rule.bands[0].score in OUTWARD_SCORES)


def weight_of(rule: Rule) -> Clip | None:
    """What a rule weighs what it keeps with; None where it weighs nothing."""
    if isinstance(rule, Drop) and rule.weight:
        return Clip(Band(rule.weight), within=rule.bands[0])
    return rule if isinstance(rule, Clip) else None


def rule_of(
    curves: Mapping[str, Curve], thresholds: Mapping[str, Any], reweights: bool, sides: bool, weight: str = ""
) -> Rule:
    """The rule of these curves at these thresholds; one that is absent (None) bounds nothing."""
    given = {name: curve for name, curve in curves.items() if thresholds[name] is not None}
    for name, curve in given.items():
        if curve.scale is SECOND_MOMENT:
            return Cut(curve.score, thresholds[name])
    bands: dict[str, Band] = {}
    for name, curve in given.items():
        unbounded = Band(curve.score, given=tuple(thresholds[parameter] for parameter in curve.given))
        bands[curve.score] = _bounded(bands.get(curve.score, unbounded), curve, thresholds[name])
    if reweights:
        (band,) = bands.values()
        clips = {curve.above: curve.scale.ratio(thresholds[name]) for name, curve in given.items() if curve.scale.ratio}
        return Clip(band, clips.get(False, -math.inf), clips.get(True, math.inf))
    return Drop(tuple(bands.values()), _signs(curves), sides, weight)


def _bounded(band: Band, curve: Curve, threshold: float) -> Band:
    bound = curve.scale.bound(threshold)
    if curve.above is None:
        # A magnitude is never below 0: a bound below it is left by all, on one side.
        return Band(band.score, -bound if bound >= 0 else -math.inf, bound)
    return replace(band, upper=bound) if curve.above else replace(band, lower=bound)


def _signs(curves: Mapping[str, Curve]) -> Signs:
    seen = [curve.signs for curve in curves.values() if curve.signs is not None and curve.score not in OUTWARD_SCORES]
    if not seen:
        return "any"
    return "apart_zero_low" if any(ZERO in signs for signs in seen) else "apart"
