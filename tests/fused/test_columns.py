"""The columns that the pass derives, against float64."""

from typing import Any

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray
from offpolicy_monitor.fused import arrays, columns
from offpolicy_monitor.fused.arrays import AWAY, BLOCK, K3, LARGER, PROBABILITY, Block
from offpolicy_monitor.summary.tables import density

from tests.fused.agreement import binary_kl

Doubles = NDArray[np.float64]
#: A hundred times the least probability that float32 holds, 1e-38, times a log-ratio.
TINY = 1e-35


def derived(a: NDArray[np.float32], b: NDArray[np.float32]) -> Block:
    """The columns of a gap with numerator old and denominator mu."""
    block = arrays.block()
    _derive(block, a, b)
    return block


@njit
def _derive(block: Any, a: Any, b: Any) -> None:
    columns.probabilities(a, block.p[1], block.rest[1])
    columns.probabilities(b, block.p[0], block.rest[0])
    columns.exponentials(block, 0, len(a), a, b)
    columns.differences(block, 0, len(a))
    columns.divergences(block, 0, len(a))


@njit
def _density_keys(a: Any, b: Any, keys: Any) -> None:
    columns.density_keys(a, b, keys)


def log_probs(seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """From near 0 to far below it, near one another and far apart, some of them certain."""
    random = np.random.default_rng(seed)
    b = -random.exponential(random.choice([1e-6, 1e-3, 0.1, 1, 5, 30, 90]), BLOCK)
    a = np.minimum(0, b + random.normal(0, random.choice([1e-6, 1e-3, 0.05, 0.5, 5, 50]), BLOCK))
    a[:: 7 if seed % 3 == 0 else BLOCK], b[:: 5 if seed % 4 == 0 else BLOCK] = 0, 0
    return a.astype(np.float32), b.astype(np.float32)


def assert_close(got: NDArray[np.float32], expected: Doubles, relative: float, absolute: float) -> None:
    finite = np.isfinite(expected)
    assert (np.abs(got[~finite]) > 1e38).all()
    apart = np.abs(got[finite] - expected[finite])
    assert (apart <= relative * np.abs(expected[finite]) + absolute).all()


@pytest.mark.parametrize("seed", range(60))
def test_binary_kls_have_their_digits_for_near_and_for_certain_policies(seed: int) -> None:
    a, b = log_probs(seed)
    block = derived(a, b)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    moved, other = binary_kl(wide_b, wide_a), binary_kl(wide_a, wide_b)
    assert_close(block.scores[AWAY, 0], np.where(wide_a >= wide_b, moved, -moved), 1e-6, TINY)
    assert_close(block.scores[LARGER, 0], np.maximum(moved, other), 1e-6, TINY)


@pytest.mark.parametrize("seed", range(20))
def test_columns_have_their_digits_whatever_the_distance(seed: int) -> None:
    a, b = log_probs(seed)
    block = derived(a, b)
    d = (a - b).astype(np.float64)
    p, q = np.exp(a.astype(np.float64)), np.exp(b.astype(np.float64))
    tiny = np.abs(d) < 1e-3
    k3 = np.where(tiny, d**2 / 2 + d**3 / 6 + d**4 / 24, np.expm1(np.clip(d, -80, 80)) - d)
    assert_close(block.scores[K3, 0], k3, 1e-6, 1e-30)
    assert_close(block.excess[0], np.expm1(np.clip(d, -80, 80)), 4e-7, 0)
    assert_close(block.scores[PROBABILITY, 0], np.sign(d) * np.maximum(p, q) * -np.expm1(-np.abs(d)), 4e-7, 1e-37)
    assert_close(block.js, np.where(tiny, d**2 / 8 - d**4 / 192, np.logaddexp(d / 2, -d / 2) - np.log(2)), 1e-6, 1e-30)


def test_a_token_gets_the_same_columns_beside_far_tokens_and_beside_near_ones() -> None:
    b = -np.random.default_rng(1).exponential(1.0, BLOCK).astype(np.float32)
    a = b + np.linspace(-0.9, 0.9, BLOCK, dtype=np.float32)
    alone = derived(a, b).scores[K3, 0].copy()
    a[::16] -= np.float32(3)
    beside = derived(a, b).scores[K3, 0]
    unmoved = np.arange(BLOCK) % 16 > 0
    assert (alone[unmoved] == beside[unmoved]).all()


def test_a_pair_of_log_probs_is_in_the_cell_between_the_edges_around_both() -> None:
    edges = density.edges().astype(np.float32)
    beside = [np.nextafter(edges, np.float32(end)) for end in (-np.inf, np.inf)]
    values = np.concatenate([edges, *beside, np.array([0.0, -0.0, 0.4, 1e30, -1e-30, -40.0, -1e30], np.float32)])
    keys = np.zeros(len(values), np.uint16)
    _density_keys(values, values[::-1].copy(), keys)
    bins = density.BINS - 1 - np.searchsorted(edges, values, side="left")
    assert keys.tolist() == (bins * density.BINS + bins[::-1]).tolist()
