"""Where the routers of two policies choose different experts, and what the tokens hold on which they do.

Ids come as bytes, and most cells (a token and a layer) are equal byte by byte; only the others are looked at expert by
expert. Of a few tokens the gaps are compared in turn, while their ids are in a processor's cache. core.routing says
what is counted. Shapes: T tokens, L layers, k experts per token and layer.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from offpolicy_monitor.fused.arrays import DENOMINATOR, NUMERATOR, Doubles, Floats, Integers, Marks, fitting
from offpolicy_monitor.fused.bits import finite, octet, pair, word
from offpolicy_monitor.fused.threads import ALONE, Threads
from offpolicy_monitor.fused.token import ONE, PASS, WITHIN, far, near
from offpolicy_monitor.slices import finished
from offpolicy_monitor.summary.tables.routing import PART_KEYS, tables_of_gap
from offpolicy_monitor.vocabulary import GAPS

Array = NDArray[Any]

#: Tokens that one thread takes at a time.
CHUNK: Final = 1 << 14
#: Tokens whose ids stay in a processor's cache while the gaps are compared in turn.
TOKENS: Final = 64
#: Bytes that are compared at a time, and where these differ.
LINE: Final = 64
WORD: Final = 8


class Ids(NamedTuple):
    """The experts of each policy as bytes [T * L * k * size], of ids of `size` bytes; empty where not sent."""

    of: tuple[Marks, Marks, Marks]
    layers: int
    k: int
    size: int


class Routed(NamedTuple):
    """What is counted of the gaps' tokens; by how many of their layers differ, [3, L + 1]."""

    missing: Integers  # [3, L]: experts of a policy that the other one did not choose
    tokens: Integers
    sums: Doubles  # [3, PART_KEYS, L + 1]


def routed(ids: Ids) -> Routed:
    """Nothing counted yet."""
    by_layers = ids.layers + 1
    return Routed(
        np.zeros((3, ids.layers), np.int64), np.zeros((3, by_layers), np.int64),
        np.zeros((3, len(PART_KEYS), by_layers)),
    )  # fmt: skip


@njit(**PASS)
def compare(ids: Any, gaps: Any, logprobs: Any, first: Any, last: Any, out: Any) -> None:
    """Ids, the gaps to compare [3], columns of log-probs [T] or empty, tokens first..last -> Routed."""
    for begin in range(first, last, TOKENS):
        end = min(begin + TOKENS, last)
        for gap in range(3):
            if gaps[gap]:
                above, below = NUMERATOR[gap], DENOMINATOR[gap]
                _compare(
                    ids.of[above], ids.of[below], ids.layers, ids.k, ids.size, logprobs[above], logprobs[below],
                    begin, end, out.missing[gap], out.tokens[gap], out.sums[gap],
                )  # fmt: skip


@njit(**WITHIN)
def _compare(
    a_ids: Any, b_ids: Any, layers: Any, k: Any, size: Any, a: Any, b: Any, begin: Any, end: Any, missing: Any,
    tokens: Any, sums: Any,
) -> None:  # fmt: skip
    known = len(a) > 0 and len(b) > 0
    for t in range(begin, end):
        if known and not (finite(a[t]) and finite(b[t])):
            continue
        differ = _layers(a_ids, b_ids, t, layers, k, size, missing)
        tokens[differ] += 1
        if known:
            d = a[t] - b[t]
            sums[0, differ] += near(d)[3] if abs(d) < ONE else far(d)[3]
            sums[1, differ] += d * d
            sums[2, differ] += abs(d)
            sums[3, differ] += np.sqrt(abs(d))


@njit(**WITHIN)
def _layers(a: Any, b: Any, t: Any, layers: Any, k: Any, size: Any, missing: Any) -> Any:
    """How many layers of a token differ."""
    width = k * size
    begin, end = t * layers * width, (t + 1) * layers * width
    number, after, at = 0, 0, begin
    while at < end:
        step = LINE if end - at >= LINE and _line_differs(a, b, at) == 0 else 0
        if step == 0:
            step = min(WORD, end - at)
            if (word(a, at) != word(b, at)) if step == WORD else _octets_differ(a, b, at, step):
                first, last = max((at - begin) // width, after), (at - begin + step - 1) // width
                for layer in range(first, last + 1):
                    lost = _missing(a, b, begin + layer * width, k, size)
                    missing[layer] += lost
                    number += lost > 0
                after = last + 1
        at += step
    return number


@njit(**WITHIN)
def _line_differs(a: Any, b: Any, at: Any) -> Any:
    apart = np.int64(0)
    for i in range(0, LINE, WORD):
        apart |= word(a, at + i) ^ word(b, at + i)
    return apart


@njit(**WITHIN)
def _octets_differ(a: Any, b: Any, at: Any, octets: Any) -> Any:
    apart = np.int64(0)
    for i in range(octets):
        apart |= octet(a, at + i) ^ octet(b, at + i)
    return apart != 0


@njit(**WITHIN)
def _missing(a: Any, b: Any, at: Any, k: Any, size: Any) -> Any:
    """k less the experts in common: those of a that b has, or those of b that a has, whichever are fewer."""
    in_b, in_a = 0, 0
    for i in range(k):
        x, y = _id(a, at, i, size), _id(b, at, i, size)
        if x == y:
            in_b += 1
            in_a += 1
        else:
            in_b += _has(b, at, x, k, size)
            in_a += _has(a, at, y, k, size)
    return k - min(in_b, in_a)


@njit(**WITHIN)
def _has(of: Any, at: Any, expert: Any, k: Any, size: Any) -> Any:
    found = np.int64(0)
    for i in range(k):
        found |= np.int64(_id(of, at, i, size) == expert)
    return found


@njit(**WITHIN)
def _id(of: Any, at: Any, i: Any, size: Any) -> Any:
    return octet(of, at + i) if size == 1 else pair(of, at + 2 * i)


def counted(
    logprobs: tuple[Floats, Floats, Floats], experts: Sequence[Array | None], threads: Threads = ALONE
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tables of the gaps whose two policies' experts were sent; log-probs [T] or empty, experts [T, L, k] or None.

    Raises ValueError where these differ in shape.
    """
    pairs = zip(NUMERATOR, DENOMINATOR, strict=True)
    compared = [experts[a] is not None and experts[b] is not None for a, b in pairs]
    if not any(compared):
        return
    gaps, sent = np.array(compared), [ids for ids in experts if ids is not None]
    ids, tokens = _bytes(experts), len(sent[0])
    total = routed(ids)

    def work(number: int) -> Routed:
        out, first = routed(ids), number * CHUNK
        compare(ids, gaps, logprobs, first, min(first + CHUNK, tokens), out)
        return out

    def add(one: Routed) -> None:
        for mine, theirs in zip(total, one, strict=True):
            np.add(mine, theirs, out=mine)

    finished(threads.each(-(-tokens // CHUNK), work, add))
    for gap in np.flatnonzero(gaps & total.tokens.any(1)):
        known = len(logprobs[NUMERATOR[gap]]) and len(logprobs[DENOMINATOR[gap]])
        sums = total.sums[gap] if known else None
        yield from tables_of_gap(GAPS[gap], ids.k, total.missing[gap], total.tokens[gap], sums)


def _bytes(experts: Sequence[Array | None]) -> Ids:
    """All in the size of the largest."""
    sent = [ids for ids in experts if ids is not None]
    if len({ids.shape for ids in sent}) > 1:
        raise ValueError(f"expert ids must be of one shape, got {[ids.shape for ids in sent]}")
    dtype, (_, layers, k) = np.result_type(*sent), sent[0].shape
    mu, old, pi = (
        np.zeros(0, np.uint8) if ids is None else fitting(ids, dtype).reshape(-1).view(np.uint8) for ids in experts
    )
    return Ids((mu, old, pi), layers, k, dtype.itemsize)
