"""Histograms hold counts at their exact bounds exactly, and answer quantiles within the error that they state."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from offpolicy_monitor.summary import Histogram
from offpolicy_monitor.summary.histogram import EXACT_BOUNDS, RELATIVE_ERROR, bin_edges, splits

from tests.summary.summaries import histogram_of

Values = NDArray[np.float32]
RNG = np.random.Generator
FRACTIONS = (0.0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0)
SMALLEST, LARGEST = 2.0**-24, 2.0**8

DISTRIBUTIONS: dict[str, Callable[[RNG, int], NDArray[np.float64]]] = {
    "normal": lambda r, n: r.normal(0, 0.05, n),
    "shifted normal": lambda r, n: r.normal(0.3, 0.01, n),
    "Cauchy": lambda r, n: np.clip(r.standard_cauchy(n) * 0.01, -250, 250),
    "lognormal": lambda r, n: r.lognormal(-3, 2, n).clip(0, 250),
    "one-sided negative": lambda r, n: -r.exponential(0.02, n),
    "two modes": lambda r, n: np.where(r.random(n) < 0.7, r.normal(-4, 0.1, n), r.normal(3, 0.2, n)),
    "mostly exact zeros": lambda r, n: np.where(r.random(n) < 0.8, 0.0, r.normal(0, 0.1, n)),
    "constant": lambda r, n: np.full(n, 0.0123),
    "negative constant": lambda r, n: np.full(n, -7.7),
    "all zero": lambda r, n: np.zeros(n),
    "tiny": lambda r, n: r.normal(0, 1e-7, n),
    "large": lambda r, n: r.uniform(-255, 255, n),
    "few values": lambda r, n: r.choice([-1.0, -0.5, 0.25, 2.0], n),
    "powers of two": lambda r, n: 2.0 ** r.integers(-20, 8, n) * r.choice([-1, 1], n),  # pyrefly: ignore[bad-assignment]
    "bfloat16 steps": lambda r, n: np.round(r.normal(0, 3, n) * 64) / 64,
}


def assert_within_the_stated_error(values: Values) -> None:
    exact = np.sort(values.astype(np.float64))
    estimates = histogram_of(values).quantiles(FRACTIONS, float(exact[0]), float(exact[-1]))
    for fraction, estimate in zip(FRACTIONS, estimates, strict=True):
        rank = fraction * (len(exact) - 1)
        share = rank - math.floor(rank)
        low, high = exact[math.floor(rank)], exact[math.ceil(rank)]
        expected = low + (high - low) * share
        allowed = RELATIVE_ERROR * ((1 - share) * abs(low) + share * abs(high)) + SMALLEST
        assert abs(estimate - expected) <= allowed, fraction
        assert np.isclose(expected, np.quantile(exact, fraction), rtol=1e-9, atol=1e-12)
        assert exact[0] <= estimate <= exact[-1]
    assert estimates == sorted(estimates)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 997, 20_000])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_quantiles_are_within_the_stated_error(name: str, count: int) -> None:
    assert_within_the_stated_error(DISTRIBUTIONS[name](np.random.default_rng(count), count).astype(np.float32))


def test_quantiles_of_merged_histograms_are_within_the_stated_error() -> None:
    random = np.random.default_rng(5)
    parts = [random.normal(mean, 0.1, 400).astype(np.float32) for mean in (-2, 0, 5)]
    merged = Histogram.empty()
    for part in parts:
        merged = merged.merge(histogram_of(part))
    assert merged == histogram_of(np.concatenate(parts))
    assert merged.total == 1200


def test_values_are_taken_to_be_spread_evenly_within_a_bin() -> None:
    values = np.linspace(1.0, 1.0312, 1001).astype(np.float32)  # all in the bin from 1 to 1 + 1/32
    (median,) = histogram_of(values).quantiles((0.5,), float(values[0]), float(values[-1]))
    assert median == pytest.approx(1.0156, abs=1e-4)


def test_values_beyond_the_largest_magnitude_stay_within_the_extremes() -> None:
    values = np.array([-1e30, -300.0, 1.0, 300.0, 1e30], np.float32)
    estimates = histogram_of(values).quantiles((0.0, 0.25, 0.5, 0.75, 1.0), float(values[0]), float(values[-1]))
    assert estimates[0] == float(values[0]) and estimates[-1] == float(values[-1])
    assert estimates[1] <= -LARGEST and estimates[3] >= LARGEST
    assert estimates[2] == pytest.approx(1.0, rel=RELATIVE_ERROR)


def test_the_extremes_are_exact_and_one_value_is_its_own_quantile() -> None:
    assert histogram_of([0.3]).quantiles((0.0, 0.5, 1.0), 0.3, 0.3) == [0.3] * 3
    assert histogram_of([-0.3, 0.7]).quantiles((0.0, 1.0), -0.3, 0.7) == [-0.3, 0.7]


def at_most(histogram: Histogram, bound: float) -> int:
    """The values in bins that end at the bound or below it."""
    return int(histogram.counts[bin_edges()[1] <= np.float32(bound)].sum())


@pytest.mark.parametrize("bound", EXACT_BOUNDS)
def test_counts_at_an_exact_bound_are_exact(bound: float) -> None:
    edge = np.float32(bound)
    below, above = np.nextafter(edge, np.array([-np.inf, np.inf], np.float32))
    values = np.array([below] * 2 + [edge] * 3 + [above] * 4 + [-1e9, 1e9], np.float32)
    assert at_most(histogram_of(values), bound) == 6


def test_counts_at_all_bounds_are_those_of_the_values() -> None:
    random = np.random.default_rng(11)
    ties = np.array(EXACT_BOUNDS).repeat(2)
    values = np.concatenate([random.normal(0, 1, 5000), random.standard_cauchy(5000), ties]).astype(np.float32)
    expected = [int((values <= np.float32(bound)).sum()) for bound in EXACT_BOUNDS]
    assert [at_most(histogram_of(values), bound) for bound in EXACT_BOUNDS] == expected


def test_the_exact_bounds_are_steps_of_one_two_five_zero_and_the_logs_of_the_default_thresholds() -> None:
    assert {0.0, 1e-6, -1e-6, 0.02, -0.5, 10.0, -10.0} <= {float(f"{bound:.12g}") for bound in EXACT_BOUNDS}
    assert {math.log(ratio) for ratio in (0.5, 0.8, 1.2, 1.28, 2.0, 5.0)} <= set(EXACT_BOUNDS)
    assert len(EXACT_BOUNDS) == 2 * 22 + 1 + 6


def test_no_bin_holds_two_exact_bounds() -> None:
    assert np.isfinite(splits()).sum() == len(EXACT_BOUNDS)


def test_histograms_of_other_counts_differ() -> None:
    assert histogram_of([1.0]) != histogram_of([1.0, 1.0])
    assert histogram_of([1.0]) != 1.0
