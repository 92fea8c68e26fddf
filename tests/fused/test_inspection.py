"""What the pass sees of a batch before it is measured."""

import numpy as np
import pytest
from numpy.typing import NDArray
from offpolicy_monitor.fused.inspection import Inspected, inspect
from offpolicy_monitor.summary.tables.longest import longest_sums

pytestmark = pytest.mark.usefixtures("fused")

NONE = np.zeros(0, np.float32)


def inspected(*columns: list[float], lengths: tuple[int, ...] = ()) -> Inspected:
    offsets = np.cumsum([0, *lengths])
    arrays: list[NDArray[np.float32]] = [np.array(column, np.float32) for column in columns]
    return Inspected(*inspect(*arrays, offsets, True))


def test_the_largest_magnitudes_are_told_in_bits_which_are_nothing_where_a_column_was_not_sent() -> None:
    found = inspected([-3, -0.5], [], [-1, -np.inf])
    assert found.most == (int(np.float32(3).view(np.int32)), 0, int(np.float32(np.inf).view(np.int32)))
    assert not found.positive and inspected([-3], [0.5], []).positive


def test_suspects_are_counted_where_there_are_any() -> None:
    assert inspected([-1, -2], [-1, -3], [-1, -4]).suspects == (0, 0, 0, 0)
    assert inspected([np.nan, 0, 0, 1], [-1, -9, -0.0, -1], [-1, -1, 2, -1]).suspects == (1, 2, 2, 1)


def test_decimal_places_are_looked_for_where_it_was_asked() -> None:
    column = np.array([-1.5], np.float32)
    asked, not_asked = (Inspected(*inspect(column, column, NONE, np.array([0, 1]), asked)) for asked in (True, False))
    assert asked.decimals.tolist() == [[1] * 5] * 2 and not not_asked.decimals.any()


@pytest.mark.parametrize("lengths", [(), (0,), (0, 0), (3,), (3, 0, 3, 1), (1, 2, 3), (5, 5, 5, 0)])
def test_the_longest_sequences_are_those_of_the_definition(lengths: tuple[int, ...]) -> None:
    filled, longest, number = inspected([], [], [], lengths=lengths).lengths
    expected = longest_sums(np.cumsum([0, *lengths]))
    if expected is None:
        assert not longest and not filled
    else:
        assert (filled, [longest], [number]) == (expected[0], *(array.tolist() for array in expected[1]))
