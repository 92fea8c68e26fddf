"""Sums of a block are as exact as they are said to be, for whatever processor they are compiled."""

import json
import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray
from offpolicy_monitor.fused import arrays, sums

#: Four terms are added in float32: two additions.
MOST = 2.0**-23
LENGTHS = (1, 2, 3, 4, 5, 97, 510, 511, 512)

Columns = NDArray[np.float32]


def columns(length: int, seed: int) -> Columns:
    """Equal numbers, numbers of two kinds by turns, and numbers of all sizes."""
    random = np.random.default_rng(seed)
    one, other = random.uniform(1e-3, 8, 2)
    return np.array([
        np.full(length, one), np.resize([one, -other], length), random.standard_normal(length)
    ], np.float32)  # fmt: skip


@njit
def of_column(x: Any) -> Any:
    return sums.total_of(x), sums.squares_of(x)


@njit
def of_gap(d: Any, out: Any) -> None:
    sums.ratio_sums(d, d, d, d, d, out)


@njit
def by_bucket(block: Any, n: Any, out: Any) -> None:
    sums.sums_by_bucket(block, n, out)


def error(found: float, terms: Any) -> float:
    """Of a sum, relative to that of the magnitudes of its float32 terms."""
    exact, size = math.fsum(map(float, terms)), math.fsum(map(abs, map(float, terms)))
    return abs(float(found) - exact) / size if size else abs(float(found))


def largest_errors() -> dict[str, float]:
    """By the kind of sum, over columns and lengths."""
    found: dict[str, list[float]] = {"columns": [], "gaps": [], "buckets": [], "outside": []}
    block = arrays.block()
    for seed, length in enumerate(LENGTHS):
        for x in columns(length, seed):
            total, squares = of_column(x)
            found["columns"] += [error(total, x), error(squares, x * x)]
            out = np.zeros(arrays.TOKEN_SUMS)
            of_gap(x, out)
            held = (arrays.RATIO, arrays.EXCESS, arrays.JS, arrays.K3_REVERSE, arrays.WEIGHT_EXCESS)
            found["gaps"] += [error(out[name], x) for name in held]
            found["gaps"].append(error(out[arrays.WEIGHT_EXCESS_SQUARE], x * x))
            keys = np.arange(length) % 5 % 3  # of three buckets, and the third has fewer
            block.scores[:] = 7.0  # whatever stands behind the tokens
            block.keys[:] = 1
            block.scores[arrays.LOG_RATIO, :, :length] = x
            block.scores[arrays.K3, :, :length] = abs(x)
            block.keys[:length] = keys
            table = np.zeros((arrays.CELL, 5))
            by_bucket(block, length, table)
            found["outside"].append(float(abs(table[:, 3:]).max()))
            for bucket in range(3):
                own = x[keys == bucket]
                terms = [np.ones(len(own)), *([own, abs(own), own * own, abs(own)] * 3), own * own]
                found["buckets"] += map(error, table[:, bucket], terms)
    return {kind: max(errors) for kind, errors in found.items()}


@pytest.mark.parametrize("processor", ["this one", "generic"])
def test_sums_are_exact_but_for_four_terms_added_in_float32(processor: str) -> None:
    """In vectors of four numbers, hundreds of equal terms one after the other in float32 are off by some 1e-6."""
    if processor == "generic":
        script = "import json; from tests.fused.test_sums import largest_errors; print(json.dumps(largest_errors()))"
        environment = os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
        said = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=300
        )
        found = json.loads(said.stdout)
    else:
        found = largest_errors()
    assert found.pop("outside") == 0
    assert found == pytest.approx(dict.fromkeys(found, 0), abs=MOST), found


def test_weights_are_cut_where_a_ratio_is_beyond_what_they_hold() -> None:
    d = np.array([-30, -1, 0, 1, 30], np.float32)
    out = np.zeros(arrays.TOKEN_SUMS)
    ratio, excess, none = np.exp(d), np.expm1(d), np.zeros(5, np.float32)
    njit(lambda *given: sums.ratio_sums(*given))(d, ratio, excess, none, none, out)
    cut = d.astype(float).clip(-20, 20)
    assert out[arrays.WEIGHT] == pytest.approx(np.exp(cut).sum())
    assert out[arrays.WEIGHT_SQUARE] == pytest.approx(np.exp(2 * cut).sum())
    assert out[arrays.WEIGHT_EXCESS] == pytest.approx(np.expm1(cut).sum())
    assert out[arrays.WEIGHT_EXCESS_SQUARE] == pytest.approx((np.expm1(cut) ** 2).sum())
    assert out[arrays.RATIO] == pytest.approx(ratio.astype(float).sum())
