"""Curves as data: which score a rule compares with its threshold, on which side, and for which signs of A.

A method may have several: one a bound, or one a threshold of its own. What-if tables are made for the scores named
here, and read by the same names. It knows no counts.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from offpolicy_monitor.summary.cells import NEGATIVE, POSITIVE


@dataclass(frozen=True)
class Scale:
    """How a threshold becomes a bound on the score, and back; what lies outside either's domain is infinite."""

    bound: Callable[[float], float]
    threshold: Callable[[float], float]


@dataclass(frozen=True)
class Curve:
    """Drops where `score` is beyond the bound: `above` it, below it (False), or its magnitude above it (None).

    `whole` is the sequence score beyond the same bound where a rule on tokens drops all of a sequence; None for rules
    on whole sequences. `signs` are the signs of A that the rule looks at, None for all.
    """

    score: str
    above: bool | None
    scale: Scale
    whole: str | None = None
    signs: tuple[int, ...] | None = None


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _root(value: float) -> float:
    return math.sqrt(2 * value) if value >= 0 else -math.inf


RATIO: Final = Scale(_log, math.exp)
NEGATED: Final = Scale(lambda t: -t, lambda x: -x)
OVER_ONE: Final = Scale(lambda t: _log(1 + t), math.expm1)
UNDER_ONE: Final = Scale(lambda t: _log(1 - t), lambda x: -math.expm1(x))
PLAIN: Final = Scale(lambda t: t, lambda x: x)
SQUARE: Final = Scale(_root, lambda x: x * x / 2)  # of k2 = d^2 / 2
GROWTH: Final = Scale(lambda t: t - 1, lambda x: x + 1)
SECOND_MOMENT: Final = Scale(lambda t: t, lambda x: x)

_SEQUENCE_RATIO: Final = {"geometric": "log_geometric_ratio", "sequence": "log_product_ratio"}
_POSITIVE, _NEGATIVE = (POSITIVE,), (NEGATIVE,)


def _bounds(level: str, upper: Scale, lower: Scale, signed: bool = False) -> dict[str, Curve]:
    """The curves of a lower and an upper bound on the ratio at a level."""
    positive, negative = (_POSITIVE, _NEGATIVE) if signed else (None, None)
    if level == "token":
        return {
            "lower": Curve("log_ratio", False, lower, "log_ratio_max", negative),
            "upper": Curve("log_ratio", True, upper, "log_ratio_min", positive),
        }
    score = _SEQUENCE_RATIO[level]
    return {
        "lower": Curve(score, False, lower, signs=negative),
        "upper": Curve(score, True, upper, signs=positive),
    }


def _inverse(score: str, whole: tuple[str | None, str | None] = (None, None)) -> dict[str, Curve]:
    """The bounds of k1 = -d: its lower bound is an upper one on d."""
    return {
        "lower": Curve(score, True, NEGATED, whole[0]),
        "upper": Curve(score, False, NEGATED, whole[1]),
    }


def _apart(score: str) -> dict[str, Curve]:
    """Thresholds for A < 0 and A > 0 on a signed token score."""
    return {
        "lower": Curve(score, False, NEGATED, f"{score}_max", _NEGATIVE),
        "upper": Curve(score, True, PLAIN, f"{score}_min", _POSITIVE),
    }


#: A method's only threshold is the curve of this name, which is answered at the top.
ONLY: Final = ""

#: (method, level, variant) -> curves by the name of their threshold. A variant is a statistic with its reduction, or a
#: divergence; the first of a method and level is what is meant where none is named.
CURVES: Final[Mapping[tuple[str, str, str], Mapping[str, Curve]]] = {
    **{("truncate", level, ""): _bounds(level, RATIO, RATIO) for level in ("token", "sequence", "geometric")},
    **{("mask", level, "ratio"): _bounds(level, RATIO, RATIO) for level in ("token", "sequence", "geometric")},
    ("mask", "token", "k1"): _inverse("log_ratio", ("log_ratio_min", "log_ratio_max")),
    ("mask", "geometric", "k1"): _inverse("log_geometric_ratio"),
    ("mask", "sequence", "k1"): _inverse("log_geometric_ratio"),
    ("mask", "sequence", "k1:sum"): _inverse("log_product_ratio"),
    ("mask", "sequence", "k1:max"): _inverse("log_ratio_min"),
    ("mask", "token", "k2"): {"upper": Curve("log_ratio", None, SQUARE, "log_ratio_abs_min")},
    ("mask", "sequence", "k2:max"): {"upper": Curve("log_ratio_abs_max", True, SQUARE)},
    ("mask", "geometric", "k3"): {"upper": Curve("k3_mean", True, PLAIN)},
    ("mask", "sequence", "k3"): {"upper": Curve("k3_mean", True, PLAIN)},
    ("veto", "sequence", ""): {
        "lower": Curve("log_ratio_min", False, RATIO),
        "upper": Curve("log_ratio_max", True, RATIO),
    },
    ("opsm", "geometric", ""): {ONLY: Curve("log_geometric_ratio", False, NEGATED, signs=_NEGATIVE)},
    **{
        ("ppo_clip", level, ""): _bounds(level, OVER_ONE, UNDER_ONE, signed=True)
        for level in ("token", "sequence", "geometric")
    },
    ("cispo", "token", ""): _bounds("token", OVER_ONE, UNDER_ONE),
    ("dppo", "token", "tv"): _apart("probability_difference"),
    ("dppo", "token", "kl"): _apart("kl_away"),
    ("ipo", "token", ""): {ONLY: Curve("probability_difference", None, PLAIN, "probability_difference_abs_min")},
    ("m2po", "token", ""): {ONLY: Curve("log_ratio", None, SECOND_MOMENT, "log_ratio_abs_min")},
    ("trm", "sequence", ""): {
        "max": Curve("log_ratio_abs_max", True, SQUARE),
        "mean": Curve("k3_mean", True, PLAIN),
    },
    ("kpop", "token", ""): {ONLY: Curve("kl_larger", True, PLAIN, "kl_larger_min")},
    ("seq_error", "sequence", ""): {ONLY: Curve("growth_mean", True, GROWTH)},
}


def variants(method: str, level: str) -> tuple[str, ...]:
    """The variants of a method and level that are kept, the one first that is meant where none is named."""
    return tuple(key[2] for key in CURVES if key[:2] == (method, level))


def variant(method: str, level: str, options: Mapping[str, Any]) -> str:
    """The variant of a row with these options (`statistic`, `divergence`, `reduce`), kept or not."""
    main: str = options.get("statistic") or options.get("divergence") or variants(method, level)[0]
    return main if options.get("reduce") in (None, "mean") else f"{main}:{options['reduce']}"


#: Kept at every gap; the curves of other methods are at the gaps where a method stands by default or was asked for.
EVERYWHERE: Final = tuple(key for key in CURVES if key[0] == "mask" and key[2] == "ratio")


@cache
def measures_of(methods: frozenset[str]) -> Mapping[str, frozenset[str]]:
    """What is kept of a gap for these methods: {score: measures, of tokens, sequences and mass}."""
    found: dict[str, frozenset[str]] = {}
    for key, curves in CURVES.items():
        for curve in curves.values() if key in EVERYWHERE or key[0] in methods else ():
            of_score = {"tokens", "mass"} if curve.whole else {"tokens", "mass", "sequences"}
            found[curve.score] = found.get(curve.score, frozenset()) | of_score
            if curve.whole:
                found[curve.whole] = found.get(curve.whole, frozenset()) | {"sequences"}
    return found


#: Score -> measures, of all methods.
MEASURES: Final = measures_of(frozenset(key[0] for key in CURVES))
#: The scores of tokens; the others are of sequences.
OF_TOKENS: Final = frozenset(curve.score for curves in CURVES.values() for curve in curves.values() if curve.whole)
