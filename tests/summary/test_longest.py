"""The longest sequences: those of a shard and of a merge, literals, and the share of a run whose answers are cut."""

import numpy as np
import pytest
from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.step import StepSummary, merge_all
from offpolicy_monitor.summary.tables.longest import longest

MEASURER = Measurer("cpu")


def measured(lengths: list[int], mask: list[int] | None = None) -> StepSummary:
    columns = {"logprobs": np.full(sum(lengths), -1.0, np.float32)}
    there = None if mask is None else np.array(mask, bool)
    return MEASURER.measure(RaggedBatch.from_positions(np.array(lengths), columns, {}, there), ())


def figures(summary: StepSummary) -> tuple[float | None, float | None]:
    found = summary.figures()
    return found.get("sequence_length_max"), found.get("longest_fraction")


def test_sequences_as_long_as_the_longest_are_counted_by_their_tokens_among_those_with_one() -> None:
    assert figures(measured([7, 3, 7, 0, 5])) == (7, 2 / 4)
    assert figures(measured([4, 4], mask=[1, 1, 0, 0, 0, 1, 1, 1])) == (3, 1 / 2)
    assert figures(measured([0, 0])) == (None, None)


@pytest.mark.parametrize(
    ("shards", "expected"),
    [([[9, 9, 2], [9, 5]], (9, 3 / 5)), ([[9, 9, 2], [8, 8]], (9, 2 / 5)), ([[3, 3], [0], [4]], (4, 1 / 3))],
)
def test_of_a_merge_the_longest_length_stands_with_all_that_have_it(
    shards: list[list[int]], expected: tuple[float, float]
) -> None:
    parts = [measured(lengths) for lengths in shards]
    assert figures(merge_all(parts)) == figures(merge_all(parts[::-1])) == expected


def test_what_an_older_release_has_counted_tells_no_longest_length() -> None:
    assert longest(Arrays.of(LAYOUT, {})) == {}
