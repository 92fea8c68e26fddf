"""Curve: one threshold of a method, as data: which score it bounds, on which side, for which signs of A.

A rule is its curves at the thresholds of a row (methods.rule); what-if draws each of them over all thresholds. So a
method says once what it compares. It knows no tokens and no counts.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from offpolicy_monitor.vocabulary import MIXED, NEGATIVE, POSITIVE, ZERO

#: What a rule may compare, a figure of each token: d, |d|, k3, p - q, KL(q || p) with the sign of d, the larger KL.
LOCAL_SCORES: Final = ("log_ratio", "log_ratio_abs", "k3", "probability_difference", "kl_away", "kl_larger")
#: The same of tokens whose update moves further out, A d > 0, and 0 of the others: |d|, the mean |r - 1| of the
#: sequence, and how far the token takes its prefix beyond a budget (core.outward). Never below 0.
OUTWARD_SCORES: Final = ("outward_log_ratio", "outward_distance", "outward_drift")
#: Those of them that a token does not have by itself, but as one of its sequence.
SEQUENTIAL_SCORES: Final = ("outward_distance", "outward_drift")
TOKEN_SCORES: Final = (*LOCAL_SCORES, *OUTWARD_SCORES)
#: The same of each sequence (of d, |d|, k2 = d^2 / 2, k3 and exp|d| - 1), and what it is of its tokens' values.
SEQUENCE_SCORES: Final[Mapping[str, Literal["mean", "sum", "extreme"]]] = {
    "log_geometric_ratio": "mean",
    "log_product_ratio": "sum",
    "log_ratio_min": "extreme",
    "log_ratio_max": "extreme",
    "log_ratio_abs_max": "extreme",
    "k2_mean": "mean",
    "k2_sum": "sum",
    "k3_mean": "mean",
    "k3_sum": "sum",
    "k3_max": "extreme",
    "growth_mean": "mean",
}
#: What a score depends on beside the tokens: the values of Curve.given, or nothing.
Given = tuple[float | None, ...]
#: Level -> the log of the importance ratio at that level.
LOG_RATIO: Final = {"token": "log_ratio", "geometric": "log_geometric_ratio", "sequence": "log_product_ratio"}


class Budget(NamedTuple):
    """What the drift of a prefix is held against: the least and the most of |p - q| per token that a prefix may have on
    average, and the weight of the last token."""

    least: float
    most: float
    last_weight: float

    @classmethod
    def of(cls, given: Given) -> "Budget":
        """As a row gives it; without a most it is twice the least."""
        least, most, last = given
        assert least is not None and last is not None
        return cls(least, 2 * least if most is None else most, last)


@dataclass(frozen=True)
class Scale:
    """How a threshold becomes a bound on the score, and back; what lies outside either's domain is infinite.

    `ratio` is the bound that the threshold is on the importance ratio, where the score is its logarithm.
    """

    bound: Callable[[float], float]
    threshold: Callable[[float], float]
    ratio: Callable[[float], float] | None = None

    @property
    def is_ratio(self) -> bool:
        """Whether the threshold is itself a bound on the importance ratio."""
        return self.ratio is _same


@dataclass(frozen=True)
class Curve:
    """Drops where `score` is beyond the bound: `above` it, below it (False), or its magnitude above it (None).

    `signs` are the signs of A that it looks at, None for all. `kept` curves have what-if tables. `given` are the
    parameters that the score itself depends on; what-if has it at their defaults.
    """

    score: str
    above: bool | None
    scale: Scale
    signs: tuple[int, ...] | None = None
    kept: bool = True
    given: tuple[str, ...] = ()

    @property
    def whole(self) -> str | None:
        """The sequence score beyond the same bound where all tokens of a sequence are; None for scores of sequences."""
        if self.score not in TOKEN_SCORES:
            return None
        return f"{self.score}_{'abs_min' if self.above is None else 'min' if self.above else 'max'}"


def _same(value: float) -> float:
    return value


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _root(value: float) -> float:
    return math.sqrt(2 * value) if value >= 0 else -math.inf


RATIO: Final = Scale(_log, math.exp, _same)
OVER_ONE: Final = Scale(lambda t: _log(1 + t), math.expm1, lambda t: 1 + t)
UNDER_ONE: Final = Scale(lambda t: _log(1 - t), lambda x: -math.expm1(x), lambda t: max(0.0, 1 - t))
NEGATED: Final = Scale(lambda t: -t, lambda x: -x)
PLAIN: Final = Scale(lambda t: t, lambda x: x)
SQUARE: Final = Scale(_root, lambda x: x * x / 2)  # of k2 = d^2 / 2
GROWTH: Final = Scale(lambda t: t - 1, lambda x: x + 1)
#: The bound is found from all tokens of a request: the largest go until the mean square of the rest is the threshold.
SECOND_MOMENT: Final = Scale(lambda t: t, lambda x: x)

_NEGATIVE, _POSITIVE, _NOT_POSITIVE = (NEGATIVE,), (POSITIVE,), (NEGATIVE, ZERO)

Curves = dict[str, Curve]


def ratio_bounds(level: str, lower: Scale = RATIO, upper: Scale = RATIO, signed: bool = False) -> Curves:
    """A lower and an upper bound on the importance ratio at a level; `signed` is low for A < 0, high for A > 0."""
    low, high = (_NEGATIVE, _POSITIVE) if signed else (None, None)
    return {
        "lower": Curve(LOG_RATIO[level], False, lower, low),
        "upper": Curve(LOG_RATIO[level], True, upper, high),
    }


def negated_bounds(lower: str, upper: str | None = None) -> Curves:
    """Bounds on minus a score, as k1 = -d has them: its lower bound is an upper one on the score."""
    return {"lower": Curve(lower, True, NEGATED), "upper": Curve(upper or lower, False, NEGATED)}


def plain_bounds(score: str, scale: Scale = PLAIN, *, kept: bool = False) -> Curves:
    """Bounds on a score that is never negative; what-if keeps the upper one, if any."""
    return {"lower": Curve(score, False, scale, kept=False), "upper": Curve(score, True, scale, kept=kept)}


def away_bounds(score: str, *, zero_is_negative: bool = False) -> Curves:
    """How far a signed score may move away: below -lower for A < 0 (or A <= 0), above upper for A > 0.

    What-if keeps the former: its cells do not tell in which sequences some tokens have A < 0 and the others A == 0.
    """
    signs, kept = (_NOT_POSITIVE, False) if zero_is_negative else (_NEGATIVE, True)
    return {
        "lower": Curve(score, False, NEGATED, signs, kept),
        "upper": Curve(score, True, PLAIN, _POSITIVE, kept),
    }


def falls(threshold: str, score: str) -> Curves:
    """Below minus the threshold, for A < 0."""
    return {threshold: Curve(score, False, NEGATED, _NEGATIVE)}


def exceeds(threshold: str, score: str, scale: Scale = PLAIN) -> Curves:
    """Above the threshold."""
    return {threshold: Curve(score, True, scale)}


def outside(threshold: str, score: str, scale: Scale = PLAIN) -> Curves:
    """Its magnitude above the threshold."""
    return {threshold: Curve(score, None, scale)}


def outward(threshold: str, score: str, scale: Scale = PLAIN, *given: str) -> Curves:
    """Above the threshold, of a score in OUTWARD_SCORES, which looks at the sign of A by itself.

    All tokens of a sequence may move outward by advantages of both signs.
    """
    return {threshold: Curve(score, True, scale, (NEGATIVE, POSITIVE, MIXED), given=given)}
