"""Densities: what is read off their counts, what older releases did not count, and what a posted one must be."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from offpolicy_monitor.summary import StepSummary, from_bytes, to_bytes
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.checks import InvalidSummaryError, checked
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.merge import merged
from offpolicy_monitor.summary.tables.density import BINS, GAPS, density, edges

from tests.summary.full import FULL, OTHER, SHARD

OLD = [Path(__file__).with_name(f"stored_v{version}.bin") for version in (1, 2, 3)]


def of_cells(gap: str, *cells: tuple[int, int]) -> Arrays:
    counts = np.zeros((BINS, BINS), np.int64)
    for numerator, mu in cells:
        counts[numerator, mu] += 1
    return Arrays.of(LAYOUT, {f"density/{gap}": {"": counts}})


def test_edges_are_log_probs_from_the_tail_to_near_certainty() -> None:
    found = edges().tolist()
    assert len(found) == BINS - 1
    assert found[:6] == [-16.0, -12.0, -8.0, -6.0, -4.0, -3.0]
    assert found[-3:] == [-(2.0**-9), -1.5 * 2.0**-10, -(2.0**-10)]
    assert np.diff(found).min() > 0


def test_counts_are_read_from_improbable_to_certain_tokens() -> None:
    counts = density(of_cells("total", (0, 1), (BINS - 1, 0)), "total")
    assert counts is not None
    assert np.argwhere(counts).tolist() == [[0, BINS - 1], [BINS - 1, BINS - 2]]


def test_densities_add_up_and_those_of_a_gap_that_nobody_sent_are_absent() -> None:
    both = merged([of_cells("total", (3, 3), (4, 3)), of_cells("mismatch", (7, 7)), of_cells("total", (4, 3))])
    total, mismatch = density(both, "total"), density(both, "mismatch")
    assert total is not None and mismatch is not None
    assert total[::-1, ::-1][[3, 4], 3].tolist() == [1, 2]
    assert (total.sum(), mismatch.sum()) == (3, 1)
    assert density(both, "staleness") is None and density(Arrays(), "total") is None


@pytest.mark.parametrize("gap", GAPS)
def test_every_token_of_the_gap_is_counted_once(gap: str) -> None:
    for summary in (FULL, FULL.merge(OTHER), from_bytes(to_bytes(FULL))):
        counts = density(summary.arrays, gap)
        assert counts is not None
        assert counts.sum() == summary.gaps[gap].sums["tokens"]


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_a_shard_of_an_older_release_has_none_and_neither_has_a_step_that_it_is_part_of(path: Path) -> None:
    old = from_bytes(path.read_bytes())
    for summary in (old, old.merge(FULL), FULL.merge(old), from_bytes(to_bytes(FULL.merge(old))).merge(FULL)):
        assert [density(summary.arrays, gap) for gap in GAPS] == [None, None]


def test_an_older_shard_without_a_token_takes_nothing_away() -> None:
    empty = bytes([3]) + to_bytes(StepSummary())[1:]
    counts = density(FULL.merge(from_bytes(empty)).arrays, "total")
    assert counts is not None and counts.any()


def changed(arrays: Arrays) -> StepSummary:
    return replace(FULL, arrays=arrays)


def test_a_posted_summary_of_an_older_release_passes_and_one_of_this_release_must_have_all_its_tokens() -> None:
    checked(changed(FULL.arrays.lacking(["density/mismatch", "density/total"])), SHARD)
    with pytest.raises(InvalidSummaryError) as missing:
        checked(changed(FULL.arrays.without(["density/total"])), SHARD)
    assert missing.value.path == "density/total"
    more = Arrays(FULL.arrays.scheme, FULL.arrays.buffer.copy(), FULL.arrays.sparse)
    more["density/mismatch"][3, 5] += 1
    with pytest.raises(InvalidSummaryError) as beyond:
        checked(changed(more), SHARD)
    assert beyond.value.path == "density/mismatch"


def test_a_table_that_all_releases_write_cannot_be_absent() -> None:
    with pytest.raises(InvalidSummaryError) as caught:
        checked(changed(FULL.arrays.lacking(["histograms/{gap}"])), SHARD)
    assert caught.value.path == "histograms/{gap}"
