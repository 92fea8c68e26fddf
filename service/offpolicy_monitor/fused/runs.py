"""Runs: the tokens of a sequence that stand in one bucket of each dimension that changes within sequences.

Those dimensions are the position, and versions and turns where they came for each token. Also what versions alone come
to: spans of one known version, and how old sequences are.
"""

from typing import Any, Final

import numpy as np
from numba import njit

from offpolicy_monitor.fused.token import PASS, WITHIN
from offpolicy_monitor.summary.tables.buckets import LAG_BUCKETS, LAGS, TURNS

#: Buckets of positions: the first token, 1 + power for tokens from 2**power on, the last.
FIRST, LAST = 0, 64
NO_LAG: Final = len(LAG_BUCKETS)
NO_TURN: Final = TURNS + 1
#: More than any dimension has, those of positions included, with one for what belongs to none.
BUCKETS: Final = LAST + 2
#: Tokens that are compared at a time.
_STRIDE = 16


@njit(**WITHIN)
def lag_bucket(version: Any, policy: Any) -> Any:
    """The bucket of a token's version lag."""
    return NO_LAG if version < 0 else min(max(policy - version, -1), LAGS) + 1


@njit(**WITHIN)
def turn_bucket(turn: Any) -> Any:
    """The bucket of a token's turn."""
    return NO_TURN if turn < 0 else min(turn, TURNS)


@njit(**PASS)
def buckets_of(offsets: Any, advantages: Any, turns: Any, versions: Any, policy: Any, constants: Any) -> Any:
    """[S, dimensions] int64: the bucket of each sequence by its length, then by the sign of A, by turn and by lag where
    these came for each sequence [S], or are empty; then of `constants` dimensions that have but one."""
    sequences = len(offsets) - 1
    signs, turning, lagging = len(advantages) > 0, len(turns) > 0, len(versions) > 0
    out = np.zeros((sequences, 1 + signs + turning + lagging + constants), np.int64)
    for s in range(sequences):
        length, power, dimension = offsets[s + 1] - offsets[s], -1, 1
        while (length >> (power + 1)) > 0:
            power += 1
        out[s, 0] = power
        if signs:
            out[s, dimension] = 1 + (advantages[s] > 0) - (advantages[s] < 0)
            dimension += 1
        if turning:
            out[s, dimension] = turn_bucket(turns[s])
            dimension += 1
        if lagging:
            out[s, dimension] = lag_bucket(versions[s], policy)
    return out


@njit(**WITHIN)
def runs_of(offsets: Any, first: Any, last: Any, versions: Any, turns: Any, policy: Any) -> Any:
    """Of sequences first..last: offsets [S + 1], versions and turns [T], empty where they change no bucket -> (begins
    [K + 1], owners [K], buckets [K, 1 to 3]: of the position, then of the lag and of the turn where they came)."""
    dimensions = 1 + (len(versions) > 0) + (len(turns) > 0)
    room = 4 * (last - first) + 64
    begins, owners, buckets = np.empty(room, np.int64), np.empty(room, np.int64), np.empty((room, 3), np.int64)
    k = 0
    for s in range(first, last):
        begin, final = offsets[s], offsets[s + 1] - 1
        t = begin
        while t <= final:
            if k == room:
                begins, owners, buckets = _twice(begins), _twice(owners), _twice(buckets)
                room *= 2
            end, bucket = _stretch(t - begin, final - begin)
            end = _unchanged(t, begin + end, versions, turns)
            begins[k], owners[k], buckets[k, 0] = t, s, bucket
            dimension = 1
            if len(versions):
                buckets[k, dimension] = lag_bucket(versions[t], policy)
                dimension += 1
            if len(turns):
                buckets[k, dimension] = turn_bucket(turns[t])
            k += 1
            t = end
    begins = np.append(begins[:k], offsets[last])
    return begins, owners[:k].copy(), buckets[:k, :dimensions].copy()


@njit(**WITHIN)
def _twice(values: Any) -> Any:
    return np.concatenate((values, np.empty_like(values)))


@njit(**WITHIN)
def _stretch(position: Any, last: Any) -> Any:
    """Where the positions of one bucket end, and the bucket."""
    if position == 0:
        return 1, FIRST
    if position == last:
        return last + 1, LAST
    power = 0
    while (position >> (power + 1)) > 0:
        power += 1
    return min(1 << (power + 1), last), 1 + power


@njit(**WITHIN)
def _unchanged(t: Any, end: Any, versions: Any, turns: Any) -> Any:
    """The end of the tokens from t on that have its version and its turn, at most `end`."""
    if len(versions):
        end = _same(versions, t, end)
    return _same(turns, t, end) if len(turns) else end


@njit(**WITHIN)
def _same(values: Any, t: Any, end: Any) -> Any:
    value, i = values[t], t + 1
    while i + _STRIDE <= end:
        changed = 0
        for k in range(_STRIDE):
            changed += values[i + k] != value
        if changed:
            break
        i += _STRIDE
    while i < end and values[i] == value:
        i += 1
    return i


@njit(**PASS)
def version_sums(offsets: Any, versions: Any, per_token: Any, policy: Any) -> Any:
    """(spans, sequences with a known version, tokens with one, sum of lags, largest lag, mean lag of each sequence).

    versions [T] or [S], below 0 where unknown; means [S], NaN where none is known.
    """
    spans, known_sequences, tokens, total, largest = 0, 0, 0, 0.0, -np.inf
    means = np.full(len(offsets) - 1, np.nan)
    for s in range(len(offsets) - 1):
        t, end = offsets[s], offsets[s + 1]
        known, lags = 0, 0.0
        while t < end:
            version = versions[t] if per_token else versions[s]
            stop = _same(versions, t, end) if per_token else end
            if version >= 0:
                lag = float(policy) - float(version)
                spans += 1
                known += stop - t
                lags += lag * (stop - t)
                largest = max(largest, lag)
            t = stop
        if known:
            known_sequences += 1
            tokens += known
            total += lags
            means[s] = lags / known
    return spans, known_sequences, tokens, total, largest, means
