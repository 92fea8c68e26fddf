"""Native buckets: every value once, in the bucket it belongs to or, within half a bin of a bound, in its neighbour."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from offpolicy_monitor.core.histogram import Layout, bin_numbers
from offpolicy_monitor.exposition import native
from offpolicy_monitor.summary import histogram as bins

LAYOUT = Layout(bins.SMALLEST_EXPONENT, bins.LARGEST_EXPONENT, bins.MANTISSA_BITS, torch.from_numpy(bins.splits()))


def counted(values: Any) -> bins.Counts:
    """The buckets of values that were counted as the service counts them."""
    numbers = bin_numbers(torch.as_tensor(values, dtype=torch.float32), LAYOUT)
    return native.bucketed(np.bincount(numbers.numpy(), minlength=bins.BINS).astype(np.int64))


def unpacked(side: native.Side) -> dict[int, int]:
    """Bucket's index -> its count, empty ones left out."""
    found, index, position = {}, 0, 0
    counts = np.cumsum(side.deltas)
    for offset, length in side.spans:
        index += offset
        for _ in range(length):
            found[index], index, position = int(counts[position]), index + 1, position + 1
    assert position == len(side.deltas)
    return {index: count for index, count in found.items() if count}


def at_most(buckets: bins.Counts, index: int) -> tuple[int, int]:
    """Values counted up to the bound of a bucket above zero, and to the mirrored bound below zero."""
    above, below = unpacked(native.positive(buckets)), unpacked(native.negative(buckets))
    near = native.zeros(buckets) + sum(below.values()) + sum(n for i, n in above.items() if i <= index)
    return near, sum(n for i, n in below.items() if i > index)


def log_ratios(seed: int, count: int = 20_000) -> Any:
    source = np.random.default_rng(seed)
    return (source.standard_normal(count) * 10.0 ** source.uniform(-8, 2, count)).astype(np.float32)


def test_counts_up_to_a_bound_are_those_up_to_a_value_at_most_half_a_bin_away() -> None:
    values = log_ratios(1)
    buckets = counted(values)
    for index in range(native.SMALLEST, native.LARGEST):
        bound = 2 ** (index / native.BUCKETS_PER_POWER)
        slack = bound * native.BOUND_ERROR
        up_to, below = at_most(buckets, index)
        assert (values <= bound - slack).sum() <= up_to <= (values <= bound + slack).sum()
        assert (values <= -bound - slack).sum() <= below <= (values <= -bound + slack).sum()


def test_counts_up_to_a_power_of_two_are_exact() -> None:
    values = log_ratios(2)
    buckets = counted(values)
    for power in range(-23, 9):
        assert not (np.abs(values) == 2.0**power).any()
        expected = int((values <= 2.0**power).sum()), int((values <= -(2.0**power)).sum())
        assert at_most(buckets, power * native.BUCKETS_PER_POWER) == expected


@pytest.mark.parametrize("power", [-23, -3, -1, 0, 1, 3, 7])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_value_that_equals_a_bound_is_in_one_of_the_two_buckets_that_meet_there(power: int, sign: int) -> None:
    buckets = counted([sign * 2.0**power] * 3)
    found = unpacked(native.positive(buckets) if sign > 0 else native.negative(buckets))
    (index,) = found
    assert found == {index: 3}
    assert index - power * native.BUCKETS_PER_POWER in (0, 1)


def test_the_bound_of_a_bucket_belongs_to_it_where_the_stored_bins_tell() -> None:
    assert unpacked(native.positive(counted([0.5, 1.0, 2.0]))) == {-8: 1, 0: 1, 8: 1}


def test_what_is_too_small_is_zero_and_what_is_too_large_is_in_the_first_bucket_above_all() -> None:
    buckets = counted([0.0, -0.0, 1e-8, -1e-8, 5e-8, -5e-8, 300.0, 1e30, -3e38])
    assert native.ZERO_THRESHOLD == 2.0**-24
    assert native.zeros(buckets) == 6
    assert unpacked(native.positive(buckets)) == {8 * 8 + 1: 2}
    assert unpacked(native.negative(buckets)) == {8 * 8 + 1: 1}


def test_folding_counts_magnitudes() -> None:
    values = log_ratios(3)
    folded, of_magnitudes = native.folded(counted(values)), counted(np.abs(values))
    assert native.negative(folded) == native.Side((), ())
    # A split of a stored bin, at a threshold as a log, may be on one side alone: then a bin beside it counts elsewhere.
    assert np.abs(np.cumsum(folded) - np.cumsum(of_magnitudes)).max() <= 0.002 * len(values)
    assert folded.sum() == len(values)


@given(st.dictionaries(st.integers(0, native.SIDE - 1), st.integers(1, 1 << 40), max_size=12))
def test_spans_and_deltas_say_where_every_count_is(filled: dict[int, int]) -> None:
    buckets = np.zeros(2 * native.SIDE + 1, np.int64)
    for position, count in filled.items():
        buckets[native.SIDE + 1 + position] = count
        buckets[native.SIDE - 1 - position] = count + 1
    expected = {position + native.SMALLEST: count for position, count in filled.items()}
    above, below = native.positive(buckets), native.negative(buckets)
    assert unpacked(above) == expected
    assert unpacked(below) == {index: count + 1 for index, count in expected.items()}
    assert all(length > 0 for _, length in above.spans)
    assert all(offset > native.GAP for offset, _ in above.spans[1:])


def test_counts_of_another_layout_are_refused() -> None:
    with pytest.raises(ValueError, match="counts must be"):
        native.bucketed(np.zeros(3, np.int64))
