"""Rules (methods.rule) as arrays of numbers that compiled code compares: bands, signs, and clips of weights."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from offpolicy_monitor.fused.arrays import DROPS, GAPS, WEIGHS, Bounds
from offpolicy_monitor.fused.sequences import NAMES
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.methods.curve import TOKEN_SCORES
from offpolicy_monitor.methods.rule import DROPPED_SIGNS, Band, Clip, Cut, Drop
from offpolicy_monitor.vocabulary import POSITIVE

_LARGEST: Final = float(np.finfo(np.float32).max)

#: The largest A of each sign, negative, zero and positive; the least is minus that of the opposite sign.
_LARGEST_OF_SIGN: Final = (float(np.nextafter(np.float32(0), np.float32(-1))), 0.0, math.inf)
#: What drops below the bands, A <= low_sign, and what above them, A >= high_sign.
_LOW_SIGNS: Final = {signs: _LARGEST_OF_SIGN[max(below)] for signs, (_, below) in DROPPED_SIGNS.items()}
_HIGH_SIGNS: Final = {signs: -_LARGEST_OF_SIGN[POSITIVE - min(above)] for signs, (above, _) in DROPPED_SIGNS.items()}


def on_tokens(row: MethodRow) -> bool:
    """Whether a row's rule looks at tokens one by one."""
    rule = row.rule
    return isinstance(rule, Cut) or all(band.score in TOKEN_SCORES for band in _bands(row))


def bounds_of(rows: Sequence[MethodRow], scores: Sequence[str], single: bool, anchors: bool) -> Bounds:
    """Rows on tokens, or rows on sequences, of these scores; `single` are compared in float32, `anchors` says whether
    on their other gap too."""
    bands = [_bands(row) for row in rows]
    ends = np.cumsum([0, *map(len, bands)])
    flat = [band for own in bands for band in own]
    clips = [row.rule if isinstance(row.rule, Clip) else Clip(Band(""), None, None) for row in rows]
    signs = [row.rule.signs if isinstance(row.rule, Drop) else "any" for row in rows]
    numbers: Any = _single if single else _double
    return Bounds(
        _whole(GAPS.index(row.gap) for row in rows),
        _whole(WEIGHS if isinstance(row.rule, Clip) else DROPS for row in rows),
        _whole(_anchor(row) if anchors else -1 for row in rows),
        _whole(ends),
        _whole(scores.index(band.score) for band in flat),
        numbers(band.lower for band in flat),
        numbers(band.upper for band in flat),
        numbers((_LOW_SIGNS[sign] for sign in signs), math.inf),
        numbers((_HIGH_SIGNS[sign] for sign in signs), math.inf),
        numbers(-math.inf if clip.lower is None else clip.lower for clip in clips),
        numbers(math.inf if clip.upper is None else clip.upper for clip in clips),
    )


def token_bounds(rows: Sequence[MethodRow], anchors: bool) -> Bounds:
    """Rows on tokens."""
    return bounds_of(rows, TOKEN_SCORES, True, anchors)


def sequence_bounds(rows: Sequence[MethodRow], anchors: bool) -> Bounds:
    """Rows on sequences."""
    return bounds_of(rows, NAMES, False, anchors)


def _bands(row: MethodRow) -> tuple[Band, ...]:
    """What a Cut drops depends on all tokens: until that is known it drops nothing."""
    rule = row.rule
    if isinstance(rule, Cut):
        return (Band(rule.score),)
    return (rule.band,) if isinstance(rule, Clip) else rule.bands


def _anchor(row: MethodRow) -> int:
    return -1 if row.other_anchor is None else GAPS.index(row.other_anchor)


def _whole(values: Iterable[Any]) -> Any:
    return np.array(list(values), np.int64)


def _double(values: Iterable[float], most: float = math.inf) -> Any:
    return np.array(list(values), np.float64)


def _single(values: Iterable[float], most: float = _LARGEST) -> Any:
    """float32, within what it can hold: beyond that every comparison comes out the same."""
    return np.clip(np.array(list(values), np.float64), -most, most).astype(np.float32)
