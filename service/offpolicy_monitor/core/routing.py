"""Where two top-k routers of a mixture-of-experts model choose different experts, and how many they have in common.

Shapes: T tokens, L layers, k experts per token and layer; n of the T * L cells (token, layer) differ. Expert ids are a
hundred times the bytes of log-probs and come from the host, so they are compared there, in numpy, whatever the device:
most cells are equal byte by byte, and only the others are looked at expert by expert. It knows no gaps, no log-probs.
"""

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Ids = NDArray[np.uint8] | NDArray[np.uint16]

#: Cells compared at a time: what is made of them on the way stays within a CPU's caches.
CHUNK_CELLS: Final = 1 << 16

#: Bytes of a machine word; a cell's ids are compared in the largest part of one that divides a cell.
WORD: Final = 8


class Rerouted(NamedTuple):
    """The cells whose two sets of experts differ, in the order of their tokens: [n] int64 each."""

    tokens: Array  # ascending
    layers: Array
    missing: Array  # k - |E_a ∩ E_b|, from 1 to k


class RoutingSums(NamedTuple):
    """What the cells of many tokens add up to."""

    missing: Array  # [L] int64: experts of each layer that the other side lacks, over the chosen tokens
    changed_layers: Array  # [T] int16: how many layers of each token differ; 0 where the token is not chosen


def routing_sums(a: Ids, b: Ids, chosen: NDArray[np.bool_] | None = None) -> RoutingSums:
    """Add up what differs, over all tokens or the chosen ones.

    Mean agreement is 1 - sum(missing) / (tokens * L * k), that of a layer 1 - missing / (tokens * k).

    a, b: [T, L, k] uint8 or uint16; chosen: [T] bool or None for all. Unit: experts, layers. Denominator: none, these
    are sums. Raises ValueError for other shapes, TypeError for other dtypes.
    """
    _check(a, b)
    if chosen is not None and chosen.shape != a.shape[:1]:
        raise ValueError(f"chosen has shape {chosen.shape}, expected {a.shape[:1]}")
    if chosen is not None and chosen.dtype != np.bool_:
        raise TypeError(f"chosen must be bool, is {chosen.dtype}")
    tokens, layers = a.shape[:2]
    missing, changed = np.zeros(layers, np.int64), np.zeros(tokens, np.int16)
    step = max(1, CHUNK_CELLS // max(layers, 1))
    for first in range(0, tokens, step):
        part = slice(first, min(first + step, tokens))
        found = rerouted(a[part], b[part])
        if chosen is not None:
            kept = chosen[part][found.tokens]
            found = Rerouted(*(column[kept] for column in found))
        missing += np.bincount(found.layers, found.missing, layers).astype(np.int64)
        changed[part] = np.bincount(found.tokens, minlength=part.stop - part.start)
    return RoutingSums(missing, changed)


def rerouted(a: Ids, b: Ids) -> Rerouted:
    """Find the cells where E_a and E_b, the sets of expert ids of two routers, differ.

    The agreement of a cell is |E_a ∩ E_b| / k: 1 where it is not among those found, else 1 - missing / k. The order of
    ids is irrelevant. An id that repeats within a cell, as no top-k router has it, names the same expert each time;
    what is in common is then counted on the side that has less of it, so that equal sets agree in full.

    a, b: [T, L, k] uint8 or uint16, each its own. Unit: experts. Denominator: none, these are counts.
    Raises ValueError for shapes that differ or are not of rank 3, TypeError for other dtypes.
    Source: rollout routing replay (R3), https://arxiv.org/abs/2510.11370, which counts the routers that differ.
    """
    _check(a, b)
    layers, dtype = a.shape[1], np.result_type(a, b)
    if not a.size:
        return Rerouted(*(np.empty(0, np.int64) for _ in range(3)))
    words_a, words_b = _words(a, dtype), _words(b, dtype)
    indices = np.flatnonzero(words_a.reshape(-1) != words_b.reshape(-1))
    if words_a.shape[1] > 1:
        indices //= words_a.shape[1]
        indices = indices[np.diff(indices, prepend=-1) > 0]
    # [k, n]: the first ids of all cells, then the second ones, so that each rank is compared in one run.
    missing = _missing(*(np.ascontiguousarray(words[indices].view(dtype).T) for words in (words_a, words_b)))
    differ = missing > 0
    return Rerouted(*np.divmod(indices[differ], layers), missing[differ])


def _check(a: Ids, b: Ids) -> None:
    if a.ndim != 3 or a.shape != b.shape:
        raise ValueError(f"expert ids must be [T, L, k] twice, got {a.shape} and {b.shape}")
    if {a.dtype, b.dtype} - {np.dtype(np.uint8), np.dtype(np.uint16)}:
        raise TypeError(f"expert ids must be uint8 or uint16, got {a.dtype} and {b.dtype}")


def _words(ids: Ids, dtype: np.dtype[Any]) -> NDArray[Any]:
    """[cells, words per cell]: the same bytes as the largest words that divide a cell."""
    whole = np.ascontiguousarray(ids, dtype)
    size = whole.shape[2] * dtype.itemsize
    word = math.gcd(size, WORD)
    return whole.reshape(-1).view(f"u{word}").reshape(-1, size // word)


def _missing(a: Ids, b: Ids) -> Array:
    """k less the ids of a that are in b, or less those of b that are in a, whichever lacks more."""
    k, cells = a.shape
    found_in_b, found_in_a = np.zeros((k, cells), bool), np.empty((k, cells), bool)
    for index in range(k):
        same = a == b[index]
        found_in_b |= same
        np.logical_or.reduce(same, axis=0, out=found_in_a[index])
    common = np.minimum(found_in_b.sum(0, dtype=np.int64), found_in_a.sum(0, dtype=np.int64))
    missing: Array = k - common
    return missing
