"""The laws of the step summary: identity, associativity, commutativity; counts exactly, float sums but for rounding."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from offpolicy_monitor.summary import MethodSummary, StepSummary, merge_all
from offpolicy_monitor.summary.arrays import Arrays, room_for_fractions
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.merge import FEW, merged
from offpolicy_monitor.summary.scheme import COUNTS, SUMS, scheme_of
from offpolicy_monitor.summary.stored.named import Parts, summary_of
from offpolicy_monitor.summary.sums import fraction

from tests.summary.summaries import SUMMARIES


def assert_equal_but_for_rounding(left: StepSummary, right: StepSummary, parts: list[StepSummary]) -> None:
    assert left.specs == right.specs
    assert left.arrays.absent == right.arrays.absent
    assert set(left.arrays.scheme.keys) == set(right.arrays.scheme.keys)
    assert left.arrays.sparse.keys() == right.arrays.sparse.keys()
    for name, span in left.arrays.scheme.spans.items():
        if name in left.arrays.absent:
            assert left.arrays.get(name) is right.arrays.get(name) is None
            continue
        mine, theirs = left.arrays[name], right.arrays[name]
        if span.section != SUMS:
            assert (mine == theirs).all(), name
        else:
            # A deviation is what squares leave of each other, and no more exact than they are.
            of = name.replace("log_ratio_deviation", "log_ratio_square")
            terms = sum(np.abs(own) for part in parts if (own := part.arrays.get(of)) is not None)
            assert (np.abs(mine - theirs) <= 1e-12 * terms).all(), name


@given(a=SUMMARIES)
def test_the_empty_summary_is_the_identity(a: StepSummary) -> None:
    assert a.merge(StepSummary.empty()) == a
    assert StepSummary.empty().merge(a) == a
    assert StepSummary.empty() == StepSummary()


@given(a=SUMMARIES, b=SUMMARIES)
def test_merge_is_commutative(a: StepSummary, b: StepSummary) -> None:
    assert a.merge(b) == b.merge(a)


@given(a=SUMMARIES, b=SUMMARIES, c=SUMMARIES)
def test_merge_is_associative(a: StepSummary, b: StepSummary, c: StepSummary) -> None:
    assert_equal_but_for_rounding(a.merge(b).merge(c), a.merge(b.merge(c)), [a, b, c])


@settings(max_examples=50)
@given(parts=st.lists(SUMMARIES, max_size=5), data=st.data())
def test_the_order_of_shards_does_not_matter(parts: list[StepSummary], data: st.DataObject) -> None:
    assert_equal_but_for_rounding(merge_all(data.draw(st.permutations(parts))), merge_all(parts), parts)


@given(a=SUMMARIES, b=SUMMARIES)
def test_merging_leaves_both_sides_as_they_were(a: StepSummary, b: StepSummary) -> None:
    before = [side.arrays.buffer.copy() for side in (a, b)]
    a.merge(b)
    assert all((side.arrays.buffer == kept).all() for side, kept in zip((a, b), before, strict=True))


@pytest.mark.parametrize("share", [FEW / 2, 2 * FEW])
def test_what_was_merged_takes_no_more_memory(share: float) -> None:
    """However many of its counts are not zero: readers keep what they have decoded, by the bytes that it takes."""
    scheme = scheme_of(LAYOUT, ("gaps/total", "histograms/total"))
    where = np.arange(int(share * scheme.sizes[COUNTS]))
    parts = [Arrays.filled_at(scheme, (where, where + part), room_for_fractions(scheme)) for part in range(3)]
    before = [part.nbytes for part in parts]
    assert merged(parts).counts[: len(where)].tolist() == (3 * where + 3).tolist()
    assert [part.nbytes for part in parts] == before


def test_a_merge_of_few_counts_holds_only_these() -> None:
    """A diagnosis merges the gradient steps of fifty steps: all their counts written out were a hundred MiB."""
    scheme = scheme_of(LAYOUT, ("gaps/total", "histograms/total"))
    few = int(0.45 * FEW * scheme.sizes[COUNTS])
    starts = (0, few // 2, 2 * few)
    parts = [Arrays.filled_at(scheme, _ones(start, few), room_for_fractions(scheme)) for start in starts]
    two = merged(parts[:2])
    assert not two.is_written_out
    assert two.nbytes < 1.5 * sum(part.nbytes for part in parts[:2])
    assert merged([two, parts[2]]).is_written_out
    together = sum(part.counts_between(0, 3 * few) for part in parts)
    assert (merged([two, parts[2]]).counts[: 3 * few] == together).all()
    assert merged(parts) == merged([two, parts[2]]) == merged([parts[0], merged(parts[1:])])


def _ones(start: int, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.arange(start, start + number), np.ones(number, np.int64)


def test_merging_nothing_is_empty() -> None:
    assert merge_all([]) == StepSummary()


def test_a_fraction_of_nothing_is_absent() -> None:
    assert fraction(1, 0) is None
    assert fraction(1, 4) == 0.25


def test_rows_of_one_name_but_other_thresholds_merge_to_nothing_for_good() -> None:
    tight, loose = (
        summary_of(Parts(methods={"opsm": {"masked_tokens": 1}, "veto": {}}, specs={"opsm": spec, "veto": {}}))
        for spec in ({"method": "opsm", "delta": 1e-4}, {"method": "opsm", "delta": 0.5})
    )
    mixed = tight.merge(loose)
    assert mixed.specs == {"opsm": None, "veto": {}}
    assert mixed.methods["opsm"] == MethodSummary(None, {})
    assert mixed.merge(tight) == tight.merge(mixed) == mixed
    assert list(mixed.figures()["methods"]) == ["veto"]
