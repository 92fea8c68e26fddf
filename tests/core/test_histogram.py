"""The kernel puts a value into the bin whose edges hold it, bit by bit."""

import numpy as np
import pytest
import torch
from offpolicy_monitor.core.histogram import Layout, bin_numbers, bins_by
from offpolicy_monitor.summary import histogram as bins

LAYOUT = Layout(bins.SMALLEST_EXPONENT, bins.LARGEST_EXPONENT, bins.MANTISSA_BITS, torch.from_numpy(bins.splits()))
ZERO_BIN = 2 * bins.LARGEST_KEY
BOUNDS = [float(np.float32(bound)) for bound in bins.EXACT_BOUNDS]


def numbers(values: list[float], dtype: torch.dtype = torch.float32) -> list[int]:
    return bin_numbers(torch.tensor(values, dtype=dtype), LAYOUT).tolist()


def neighbours(value: float) -> tuple[float, float]:
    below, above = np.nextafter(np.float32(value), np.array([-np.inf, np.inf], np.float32))
    return float(below), float(above)


def test_the_layout_has_as_many_bins_as_the_summary() -> None:
    assert LAYOUT.largest_key == bins.LARGEST_KEY
    assert LAYOUT.bins == bins.BINS


def test_zeros_of_both_signs_and_magnitudes_below_the_smallest_are_in_the_zero_bins() -> None:
    assert numbers([0.0, -0.0, -1e-30, -(2.0**-25)]) == [ZERO_BIN] * 4
    assert numbers([1e-30, 2.0**-25, neighbours(2.0**-24)[0]]) == [ZERO_BIN + 1] * 3
    assert numbers([-neighbours(2.0**-24)[0]]) == [ZERO_BIN]


def test_the_smallest_magnitude_opens_the_first_bin_of_each_sign() -> None:
    assert numbers([2.0**-24, -(2.0**-24)]) == [ZERO_BIN + 2, ZERO_BIN - 2]


def test_magnitudes_beyond_the_largest_share_the_outermost_bin_of_their_sign() -> None:
    assert numbers([256.0, 1e30, 3e38, float("inf")]) == [bins.BINS - 2] * 4
    assert numbers([-256.0, -1e30, -3e38, float("-inf")]) == [0] * 4
    assert numbers([neighbours(256.0)[0]]) == [bins.BINS - 4]


@pytest.mark.parametrize("bound", BOUNDS)
def test_an_exact_bound_is_a_bins_upper_edge_bit_by_bit(bound: float) -> None:
    below, above = neighbours(bound)
    at = numbers([below, bound, above])
    assert at[0] <= at[1] < at[2]
    upper = bins.bin_edges()[1]
    assert upper[at[1]] <= bound
    assert upper[at[2]] > bound


def test_no_two_exact_bounds_share_a_bin() -> None:
    keys = [number // 2 for number in numbers(BOUNDS)]
    assert len(set(keys)) == len(BOUNDS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_value_lies_between_the_edges_of_its_bin(dtype: torch.dtype) -> None:
    random = np.random.default_rng(0)
    spread = random.choice([-1, 1], 20_000) * 2.0 ** random.uniform(-27, 10, 20_000)
    powers = [s * 2.0**e * (1 + part / 32) for s in (1, -1) for e in range(-24, 8) for part in range(32)]
    values = np.concatenate([spread, powers, BOUNDS]).astype(np.float32)
    lower, upper = bins.bin_edges()
    at = bin_numbers(torch.from_numpy(values).to(dtype), LAYOUT).numpy()
    wide = values.astype(np.float64)
    assert ((lower[at] <= wide) & (wide <= upper[at])).all()
    assert (np.diff(at[np.argsort(wide, kind="stable")]) >= 0).all()


def test_bins_keep_the_order_of_values_and_touch() -> None:
    lower, upper = bins.bin_edges()
    assert (lower <= upper).all()
    assert (lower[1:] == upper[:-1]).all()
    assert (lower[0], upper[-1]) == (-np.inf, np.inf)


def test_every_row_of_values_is_binned_alike() -> None:
    values = torch.tensor([[0.0, 1.0, -1.0], [1e9, -1e-30, 0.25]])
    rows = [bin_numbers(row, LAYOUT).tolist() for row in values]
    assert bin_numbers(values, LAYOUT).tolist() == rows


def test_values_are_left_as_they_were() -> None:
    values = torch.tensor([0.5, -300.0, 1e-30])
    bin_numbers(values, LAYOUT)
    assert values.tolist() == pytest.approx([0.5, -300.0, 1e-30])


def test_values_of_several_layouts_get_the_bins_that_each_alone_gives() -> None:
    coarse = Layout(-24, 24, 4, torch.empty(0))
    source = np.random.default_rng(1)
    values = torch.from_numpy(
        (source.choice([-1, 1], 9_000) * 2.0 ** source.uniform(-30, 30, 9_000)).astype(np.float32)
    )
    first, second, third = bins_by([(LAYOUT, 4_000), (coarse, 5_000), (LAYOUT, 0)], values)
    assert torch.equal(first, bin_numbers(values[:4_000], LAYOUT))
    assert torch.equal(second, bin_numbers(values[4_000:], coarse))
    assert (len(third), third.dtype) == (0, torch.int32)
    with pytest.raises(ValueError, match="values"):
        bins_by([(LAYOUT, 4_000)], values)
