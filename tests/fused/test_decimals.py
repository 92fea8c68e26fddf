"""Decimal log-probs are counted by the pass as summary.tables.decimals counts them."""

import numpy as np
import pytest
from numpy.typing import NDArray
from offpolicy_monitor.fused.inspection import Inspected, inspect
from offpolicy_monitor.summary.tables import decimals

pytestmark = pytest.mark.usefixtures("fused")

#: Of none, of less than a strip, of whole strips, and of some and a part of one.
SIZES = (0, 1, 63, 64, 65, 128, 900)


def multiples(values: NDArray[np.float32]) -> list[int]:
    """What the pass counts in a column: of mu, and the same of old."""
    column, none = np.append(values, np.float32(0)), np.zeros(0, np.float32)
    mu, nothing = Inspected(*inspect(column, none, none, np.array([0, len(column)]), True)).decimals.tolist()
    assert [nothing, mu] == Inspected(*inspect(none, column, none, np.array([0, len(column)]), True)).decimals.tolist()
    assert not any(nothing)
    return mu


def log_probs(size: int, places: int | None, missing: bool) -> NDArray[np.float32]:
    """[T] float32, some of them from -2 to -1: as they were drawn, or rounded to so many decimal places."""
    random = np.random.default_rng([size, 9 if places is None else places, missing])
    values = (-random.exponential(1.5, size)).astype(np.float32)
    if places is not None:
        values = np.where(random.random(size) < 0.8, np.round(values, places), values)
    if missing:
        values[random.random(size) < 0.1] = np.nan
        values[random.random(size) < 0.02] = -np.inf
    return values


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("places", [None, *range(7)])
def test_the_pass_counts_the_multiples_of_each_place_as_numpy_does(places: int | None, missing: bool) -> None:
    for size in SIZES:
        values = log_probs(size, places, missing)
        assert multiples(values) == list(decimals.multiples(values))


def test_the_ends_of_what_is_looked_at_and_what_nearly_is_a_multiple_are_counted_alike() -> None:
    ends = np.array([-2, -1, *np.nextafter(np.array([-2, -1], np.float32), np.float32(-3)), -1.5, -1.23456], np.float32)
    near = np.float32(-1.2345) + np.arange(-4, 5, dtype=np.float32) * np.float32(1.2e-7)
    values = np.concatenate([ends, near, np.full(7, np.nan, np.float32)])
    assert multiples(values) == list(decimals.multiples(values))
    assert multiples(values)[0] == 13
