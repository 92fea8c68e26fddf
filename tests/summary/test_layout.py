"""The layout: every number of a summary is a row of it, and merging follows from what rows declare."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from offpolicy_monitor.summary import StepSummary
from offpolicy_monitor.summary.arrays import Arrays, merged
from offpolicy_monitor.summary.layout import LAYOUT, Layout
from offpolicy_monitor.summary.named import arrays_of, from_step, records_of, to_step
from offpolicy_monitor.summary.rows import PART, Row, Table, count, magnitude, number

from tests import strategies
from tests.summary.full import FULL, OTHER, measured


def step(arrays: Arrays, like: StepSummary) -> StepSummary:
    return to_step(arrays, {name: method.spec for name, method in like.methods.items()}, like.worst)


def test_every_number_of_a_summary_is_in_its_arrays() -> None:
    assert step(from_step(FULL), FULL) == FULL


@settings(max_examples=50, deadline=None)
@given(strategies.sequences())
def test_every_batch_keeps_its_numbers_in_arrays(sent: list[Any]) -> None:
    summary = measured(strategies.packed(sent))
    assert step(from_step(summary), summary) == summary


def test_arrays_merge_as_summaries_do() -> None:
    both = merged([from_step(FULL), from_step(OTHER)])
    expected = FULL.merge(OTHER)
    assert replace(step(both, expected), worst=expected.worst) == expected


def test_three_merged_at_once_are_three_merged_one_by_one() -> None:
    a, b = from_step(FULL), from_step(OTHER)
    assert merged([a, b, a]) == merged([merged([a, b]), a])
    assert merged([Arrays(), a]) == merged([a, Arrays()]) == a == merged([a])
    assert merged([]) == Arrays()


def test_merging_changes_neither_side() -> None:
    a = from_step(FULL)
    before = a.buffer.copy()
    merged([a, a])
    assert (a.buffer == before).all()


def test_no_two_tables_are_declared_at_one_place() -> None:
    keys = [table.key for table in LAYOUT.tables]
    assert len(set(keys)) == len(keys)
    for table in LAYOUT.tables:
        assert len({row.name for row in table.rows}) == len(table.rows), table.key
        assert all(table.meaning and row.meaning for row in table.rows), table.key
        assert PART not in table.path


def test_what_rows_say_they_are_part_of_is_declared() -> None:
    for table in LAYOUT.tables:
        siblings = {row.name for other in LAYOUT.tables if other.path == table.path for row in other.rows}
        for row in table.rows:
            for named in filter(None, (row.at_most, row.total)):
                path, _, name = named.format(gap="mismatch", row="opsm").rpartition("/")
                known = {row.name for found in LAYOUT.parts(path) for row in found.rows}
                assert name in (known if path else siblings), (table.key, row.name)


OLD = Table("steps/{gap}", (count("tokens", "tokens"), number("x", "x"), magnitude("most", "most", merge="max")), "old")
#: What a later release adds to it, and a table of its own.
LATER = (replace(OLD, rows=(*OLD.rows, Row("y", "number", "y", since=4))), Table("z", (count("n"),), "new", since=4))


def test_a_sum_that_an_older_shard_lacks_is_absent_from_the_merge() -> None:
    layout = Layout(LATER)
    new = Arrays.of({"steps/total": {"tokens": 10, "x": 1.0, "most": 7.0, "y": 5.0}}, layout)
    old = arrays_of({"steps/total": {"tokens": 10, "x": 2.0, "most": 3.0}}, layout)
    assert new.record("steps/total")["y"] == 5.0
    for both in (merged([new, old]), merged([old, new]), merged([merged([new, old]), new])):
        assert "y" not in both.record("steps/total")
        assert both.get("steps/total/y") is None
        assert both.record("steps/total")["x"] >= 3.0
        assert both.record("steps/total")["most"] == 7.0


def test_a_shard_that_counts_nothing_makes_no_sum_absent() -> None:
    layout = Layout(LATER)
    new = Arrays.of({"steps/total": {"tokens": 10, "x": 1.0, "most": 7.0, "y": 5.0}}, layout)
    nothing = arrays_of({"steps/total": {"tokens": 0, "x": 0.0}}, layout)
    assert merged([new, nothing]).record("steps/total") == new.record("steps/total")


def test_a_name_that_is_not_declared_is_an_error() -> None:
    unknown: list[dict[str, dict[str, float]]]
    unknown = [{"shoes": {"tokens": 1}}, {"gaps/shoes": {}}, {"cross": {"shoes": 1}}]
    for records in unknown:
        with pytest.raises(KeyError):
            arrays_of(records)
    with pytest.raises(KeyError):
        Arrays.of({"cross": {"tokens": 1}})


def test_whole_numbers_of_any_size_are_added_where_both_have_them() -> None:
    parts = [arrays_of({"versions/lag": {"-3": 1, "2": 5}}), arrays_of({"versions/lag": {"2": 1, "900719925474": 2}})]
    assert records_of(merged(parts)) == {"versions/lag": {"-3": 1, "2": 6, "900719925474": 2}}


def test_minima_and_maxima_of_a_part_that_has_none_are_those_of_the_other() -> None:
    gap = from_step(FULL).record("gaps/total")
    both = merged(
        [from_step(FULL), from_step(StepSummary(gaps={"total": replace(FULL.gaps["total"], sums={}, histograms={})}))]
    )
    assert {name: both.record("gaps/total")[name] for name in gap} == gap
    assert np.isfinite(both.sections[2]).all()
