"""Rows of many summaries at once are those of each, whatever tables each has and however its counts are kept."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from offpolicy_monitor.summary import StepSummary
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.stacked import Stacked

from tests.summary.summaries import SUMMARIES


def held(summary: StepSummary, written_out: bool) -> Arrays:
    """Its arrays with all counts, or with those alone that are not zero."""
    arrays = summary.arrays
    if written_out:
        return arrays.copy()
    fractions = arrays.buffer[arrays.scheme.sizes[0] :].view(np.float64)
    return Arrays.filled_at(arrays.scheme, arrays.filled, fractions).lacking(arrays.absent)


PARTS = st.lists(st.builds(held, SUMMARIES, st.booleans()), max_size=5)


@settings(max_examples=60)
@given(parts=PARTS, data=st.data())
def test_each_row_is_that_of_each_part_and_the_total_is_their_sum(parts: list[Arrays], data: st.DataObject) -> None:
    stacked, written_out = Stacked(parts), [part.is_written_out for part in parts]
    assert len(stacked) == len(parts)
    shapes = {name: span.shape for part in parts for name, span in part.scheme.spans.items()}
    names = sorted(shapes)
    for name in data.draw(st.lists(st.sampled_from(names), max_size=8)) if names else ():
        shape = shapes[name]
        expected = [part[name] if name in part.scheme.spans else np.zeros(shape) for part in parts]
        assert np.array_equal(stacked.rows(name, shape), np.stack(expected))
        summed = np.sum(expected, axis=0, dtype=np.float64)
        assert np.allclose(stacked.total(name, shape), summed, rtol=1e-12, atol=1e-300, equal_nan=True)
        path, _, row = name.rpartition("/")
        assert stacked.has(path).tolist() == [path in part for part in parts]
        if shape == ():
            assert stacked.numbers(path, row).tolist() == [part.record(path).get(row, 0) for part in parts]
    # What is kept stays as small as it was weighed.
    assert [part.is_written_out for part in parts] == written_out


def test_what_no_part_has_is_nothing() -> None:
    empty, one = Stacked([]), Stacked([Arrays()])
    assert empty.rows("whatif/total/k3/tokens", (4, 2)).shape == (0, 4, 2)
    assert not empty.total("whatif/total/k3/tokens", (3,)).any()
    assert one.rows("none", (2,)).tolist() == [[0, 0]] and one.has("none").tolist() == [False]
