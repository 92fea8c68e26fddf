"""Rules (methods.rule) as arrays of numbers that compiled code compares: bands, signs, and clips of weights."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from offpolicy_monitor.fused import ahead, arrays, sequences
from offpolicy_monitor.fused.arrays import BOTH, DROPS, WEIGHS, Bounds
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.methods.curve import OUTWARD_SCORES, Budget, Given
from offpolicy_monitor.methods.rule import DROPPED_SIGNS, Band, Clip, Cut, Rule, looks_ahead
from offpolicy_monitor.vocabulary import GAPS, POSITIVE

_LARGEST: Final = float(np.finfo(np.float32).max)

#: The largest A of each sign, negative, zero and positive; the least is minus that of the opposite sign.
_LARGEST_OF_SIGN: Final = (float(np.nextafter(np.float32(0), np.float32(-1))), 0.0, math.inf)
#: What drops below the bands, A <= low_sign, and what above them, A >= high_sign.
_LOW_SIGNS: Final = {signs: _LARGEST_OF_SIGN[max(below)] for signs, (_, below) in DROPPED_SIGNS.items()}
_HIGH_SIGNS: Final = {signs: -_LARGEST_OF_SIGN[POSITIVE - min(above)] for signs, (above, _) in DROPPED_SIGNS.items()}


def bounds_of(rows: Sequence[MethodRow], scores: Sequence[str], single: bool, anchors: bool) -> Bounds:
    """Rows on tokens, or rows on sequences, of these scores; `single` are compared in float32, `anchors` says whether
    on their other gap too."""
    bands = [_bands(row) for row in rows]
    ends = np.cumsum([0, *map(len, bands)])
    flat = [band for own in bands for band in own]
    clips = [row.weight or Clip(Band("")) for row in rows]
    numbers: Any = _single if single else _double
    return Bounds(
        _whole(GAPS.index(row.gap) for row in rows),
        _whole(WEIGHS if isinstance(row.rule, Clip) else BOTH if row.weight else DROPS for row in rows),
        _whole(_anchor(row) if anchors else -1 for row in rows),
        _whole(ends),
        _whole(scores.index(band.score) for band in flat),
        numbers(band.lower for band in flat),
        numbers(band.upper for band in flat),
        numbers((_LOW_SIGNS[row.rule.signs] for row in rows), math.inf),
        numbers((_HIGH_SIGNS[row.rule.signs] for row in rows), math.inf),
        numbers(clip.lower for clip in clips),
        numbers(clip.upper for clip in clips),
        _whole(scores.index(clip.band.score) if clip.band.score else 0 for clip in clips),
    )


def token_bounds(rows: Sequence[MethodRow], anchors: bool) -> Bounds:
    """Rows on tokens."""
    return bounds_of(rows, arrays.NAMES, True, anchors)


def sequence_bounds(rows: Sequence[MethodRow], anchors: bool) -> Bounds:
    """Rows on sequences."""
    return bounds_of(rows, sequences.NAMES, False, anchors)


def compares(row: MethodRow) -> bool:
    """Whether the pass has all that a row compares, and weighs with."""
    rule = row.rule
    if isinstance(rule, Cut):
        return rule.score in (arrays.NAMES[arrays.LOG_RATIO], *OUTWARD_SCORES)
    if looks_ahead(rule):
        return len(rule.bands) == 1
    weights = () if row.weight is None else (row.weight.band.score,)
    known = arrays.NAMES if rule.of_tokens else sequences.NAMES
    return {*(band.score for band in rule.bands), *weights} <= {*known}


def ahead_of(rule: Rule) -> tuple[float, ...]:
    """A rule that looks ahead, as fused.ahead has it after its number."""
    if isinstance(rule, Cut):
        score = 1 + OUTWARD_SCORES.index(rule.score) if rule.score in OUTWARD_SCORES else ahead.MAGNITUDE
        return score, rule.mean_square, 1, 0, 0, 0
    [band] = rule.bands
    return 1 + OUTWARD_SCORES.index(band.score), band.upper, 0, *given_numbers(band.given)


def given_numbers(given: Given) -> tuple[float, float, float]:
    """What an outward score depends on: the least and the most budget and the last weight, or nothing."""
    if not given:
        return 0.0, 0.0, 0.0
    budget = Budget.of(given)
    return budget.least, budget.most, budget.last_weight


def _bands(row: MethodRow) -> tuple[Band, ...]:
    """What a rule that looks ahead drops depends on many tokens: until these are known it drops nothing."""
    return (Band("log_ratio"),) if looks_ahead(row.rule) else row.rule.bands


def _anchor(row: MethodRow) -> int:
    return -1 if row.other_anchor is None else GAPS.index(row.other_anchor)


def _whole(values: Iterable[Any]) -> Any:
    return np.array(list(values), np.int64)


def _double(values: Iterable[float], most: float = math.inf) -> Any:
    return np.array(list(values), np.float64)


def _single(values: Iterable[float], most: float = _LARGEST) -> Any:
    """float32, within what it can hold: beyond that every comparison comes out the same."""
    return np.clip(np.array(list(values), np.float64), -most, most).astype(np.float32)
