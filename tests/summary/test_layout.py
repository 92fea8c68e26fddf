"""The layout: every number of a summary is a row of it, and merging follows from what rows declare."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from offpolicy_monitor.summary import StepSummary
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.merge import merged
from offpolicy_monitor.summary.rows import AS_ARRAYS, PART, SPARSE, Layout, Row, Table, count, magnitude, number
from offpolicy_monitor.summary.scheme import COUNTS, Run, Scheme, runs, scheme_of, union
from offpolicy_monitor.summary.stacked import Stacked
from offpolicy_monitor.summary.stored import version_3
from offpolicy_monitor.summary.stored.named import RecordError, arrays_of

from tests.summary.full import FULL, OTHER
from tests.summary.records import records_of


def test_every_number_of_records_is_in_arrays_under_its_name() -> None:
    records = {path: record for path, record in records_of(FULL.arrays).items() if not path.startswith("histograms/")}
    assert len(records) > 300
    again = records_of(arrays_of(records))
    assert {path: dict(record) for path, record in records.items()} == again


def test_sums_add_and_extremes_are_the_larger_or_the_smaller() -> None:
    both, parts = FULL.merge(OTHER).arrays, (FULL.arrays, OTHER.arrays)
    for name, span in both.scheme.spans.items():
        found = [part[name] for part in parts if name in part.scheme.spans]
        if name.endswith("deviation"):
            continue
        of = (np.add, np.add, np.minimum, np.maximum)[span.section]
        assert (both[name] == of.reduce(found)).all(), name


def test_three_merged_at_once_are_three_merged_one_by_one() -> None:
    a, b = FULL.arrays, OTHER.arrays
    assert merged([a, b, a]) == merged([merged([a, b]), a])
    assert merged([Arrays(), a]) == merged([a, Arrays()]) == a == merged([a])
    assert merged([]) == Arrays()


def test_merging_changes_neither_side() -> None:
    a = FULL.arrays
    before = a.buffer.copy()
    merged([a, a])
    assert (a.buffer == before).all()


@pytest.mark.parametrize("share", [0.0, 1e-3, 0.5, 1.0])
def test_counts_add_up_however_many_of_them_are_zero(share: float) -> None:
    source = np.random.default_rng(1)
    keys = ("histograms/mismatch", "breakdown/position/mismatch", "histograms/total")
    sides = [Arrays(scheme_of(LAYOUT, keys)), Arrays(scheme_of(LAYOUT, keys[::-2]))]
    for side in sides:
        counts = side.sections[COUNTS]
        counts[...] = np.where(source.random(len(counts)) < share, source.integers(0, 9, len(counts)), 0)
    both = merged(sides)
    for name in both.scheme.spans:
        assert (both[name] == sum(side[name] for side in sides if name in side.scheme.spans)).all(), name


def test_counts_that_are_told_by_where_they_are_not_zero_read_and_merge_as_all_of_them_do() -> None:
    dense = FULL.arrays
    few = Arrays.filled_at(dense.scheme, dense.filled, np.concatenate(dense.fractions))
    few.sparse, few.absent = dense.sparse, dense.absent
    assert few.nbytes < dense.nbytes
    assert all((few[name] == dense[name]).all() for name in dense.scheme.spans)
    assert all(few.record(path) == dense.record(path) for path in dense.scheme.paths)
    for arrays in (few, dense):
        for path in dense.scheme.paths:
            columns = arrays.columns(path)
            assert {row: columns[row].item() for row in arrays.record(path)} == arrays.record(path)
        assert arrays.record("none") == {}
        assert "tokens" in arrays.record("cross") and "tokens" not in arrays.lacking({"cross/tokens"}).record("cross")
    entries = np.arange(dense.scheme.sizes[COUNTS])[:, None]
    assert (few.counts_at(entries) == dense.counts[entries]).all()
    assert merged([few, few]) == merged([dense, dense]) and merged([Arrays(), few]) == dense
    assert few == dense and (few.buffer == dense.buffer).all()


@pytest.mark.parametrize(
    "absent", [frozenset(), frozenset({"batch/tokens", "gaps/total/k3"})], ids=["all", "some lack"]
)
def test_tables_that_are_read_together_say_what_each_says_alone(absent: frozenset[str]) -> None:
    for summary in (FULL, FULL.merge(OTHER)):
        ahead, alone = (summary.arrays.copy().lacking(absent) for _ in range(2))
        paths = (*ahead.scheme.paths, "nowhere")
        ahead.read_ahead(paths)
        for path in paths:
            assert ahead.record(path) == alone.record(path), path
            rows = alone.columns(path).items() if path in alone else ()
            assert ahead.lists(path) == {name: row.ravel().tolist() for name, row in rows if row.ndim}, path
            assert alone.lists(path) == ahead.lists(path), path


def test_a_union_that_goes_on_from_the_one_before_it_is_laid_out_as_one_that_is_made_at_once() -> None:
    ahead = ("batch", "cross", "gaps/total", "histograms/total")
    shards = [scheme_of(LAYOUT, (*ahead, f"breakdown/shard/{n}/total", f"breakdown/shard/{n}/cross")) for n in range(9)]
    grown = shards[0]
    for shard in shards[1:]:
        grown = union((grown, shard))
    shards[0].base.grows = None
    alone = Scheme(LAYOUT, grown.keys, LAYOUT.version)
    assert grown.base is shards[0].base and len(grown.own) == 18
    found, expected = ((s.sizes, s.starts, s.begins, s.sparse, s.deviations) for s in (grown, alone))
    assert found == expected and dict(grown.spans) == dict(alone.spans) and grown.tables == alone.tables


def test_what_is_not_kept_cannot_be_written_to() -> None:
    few = Arrays.filled_at(FULL.arrays.scheme, FULL.arrays.filled, np.concatenate(FULL.arrays.fractions))
    with pytest.raises(ValueError, match="read-only"):
        few["batch/tokens"][...] = 1


def test_no_two_tables_are_declared_at_one_place() -> None:
    keys = [table.key for table in LAYOUT.tables]
    assert len(set(keys)) == len(keys)
    for table in LAYOUT.tables:
        assert len({row.name for row in table.rows}) == len(table.rows), table.key
        assert all(table.meaning and row.meaning for row in table.rows), table.key
        assert PART not in table.path


def test_what_rows_name_beside_themselves_is_declared() -> None:
    for table in LAYOUT.tables:
        siblings = {row.name for other in LAYOUT.tables if other.path == table.path for row in other.rows}
        for row in table.rows:
            for named in row.others:
                path, _, name = named.format(gap="mismatch", row="opsm").rpartition("/")
                known = {row.name for found in LAYOUT.parts(path) for row in found.rows}
                assert name in (known if path else siblings), (table.key, row.name)


OLD = Table("steps/{gap}", (count("tokens", "tokens"), number("x", "x"), magnitude("most", "most", merge="max")), "old")
#: What a later release adds to it, and a table of its own.
LATER = (replace(OLD, rows=(*OLD.rows, Row("y", "number", "y", since=4))), Table("z", (count("n"),), "new", since=4))


def test_a_sum_that_an_older_shard_lacks_is_absent_from_the_merge() -> None:
    layout = Layout(LATER)
    new = Arrays.of(layout, {"steps/total": {"tokens": 10, "x": 1.0, "most": 7.0, "y": 5.0}})
    old = arrays_of({"steps/total": {"tokens": 10, "x": 2.0, "most": 3.0}}, layout)
    assert new.record("steps/total")["y"] == 5.0
    for both in (merged([new, old]), merged([old, new]), merged([merged([new, old]), new])):
        assert "y" not in both.record("steps/total")
        assert both.get("steps/total/y") is None
        assert both.record("steps/total")["x"] >= 3.0
        assert both.record("steps/total")["most"] == 7.0


def test_a_row_of_any_shape_that_an_older_shard_lacks_is_absent_from_the_merge() -> None:
    by = Table("by", (count("tokens", "tokens", 3), number("x", "x")), "old")
    at = count("at", "at", SPARSE, since=4)
    rows = (*by.rows, count("later", "later", 3, since=4), Row("one", "number", "one", since=4), at)
    layout = Layout((replace(by, rows=rows),))
    counted = {"tokens": [1, 2, 3], "x": 1.0, "later": [4, 5, 6], "one": 3.0, "at": (np.array([7]), np.array([2]))}
    new = Arrays.of(layout, {"by": counted})
    before = StepSummary(Arrays.of(Layout((by,)), {"by": {"tokens": [1, 1, 1], "x": 2.0}}))
    old = version_3.read(version_3.write(before), 3, layout).arrays
    assert new.lists("by")["later"] == [4, 5, 6] and new.at("by/at")[0].tolist() == [7]
    for both in (merged([new, old]), merged([old, new]), merged([merged([new, old]), new])):
        assert both.lists("by").keys() == {"tokens"} and both.columns("by").keys() == {"tokens", "x"}
        assert not len(both.at("by/at")[0]) and both.get("by/later") is None
        with pytest.raises(KeyError):
            both["by/later"]
        again = version_3.read(version_3.write(StepSummary(both)), 4, layout).arrays
        assert again == both and again.lists("by").keys() == {"tokens"} and not len(again.at("by/at")[0])
        stacked = Stacked([new, both])
        assert stacked.rows("by/later", (3,)).tolist() == [[4, 5, 6], [0, 0, 0]]
        assert stacked.total("by/later", (3,)).tolist() == [4, 5, 6]


def test_a_shard_that_counts_nothing_makes_no_sum_absent() -> None:
    layout = Layout(LATER)
    new = Arrays.of(layout, {"steps/total": {"tokens": 10, "x": 1.0, "most": 7.0, "y": 5.0}})
    nothing = arrays_of({"steps/total": {"tokens": 0, "x": 0.0}}, layout)
    assert merged([new, nothing]).record("steps/total") == new.record("steps/total")


def test_a_name_that_is_not_declared_is_an_error() -> None:
    unknown: list[dict[str, dict[str, float]]]
    unknown = [{"shoes": {"tokens": 1}}, {"gaps/shoes": {}}, {"cross": {"shoes": 1}}]
    for records in unknown:
        with pytest.raises(RecordError):
            arrays_of(records)
    with pytest.raises(KeyError):
        Arrays.of(LAYOUT, {"cross": {"tokens": 1}})


def test_whole_numbers_of_any_size_are_added_where_both_have_them() -> None:
    parts = [arrays_of({"versions/lag": {"-3": 1, "2": 5}}), arrays_of({"versions/lag": {"2": 1, "900719925474": 2}})]
    assert records_of(merged(parts)) == {"versions/lag": {"-3": 1, "2": 6, "900719925474": 2}}


def test_minima_and_maxima_of_a_part_that_has_none_are_those_of_the_other() -> None:
    gap = FULL.arrays.record("gaps/total")
    both = merged([FULL.arrays, arrays_of({"gaps/total": {}})])
    assert both.record("gaps/total") == gap


def test_a_shard_stored_before_a_row_was_declared_lacks_it_in_every_merge() -> None:
    later = Layout(LATER)
    new = StepSummary(Arrays.of(later, {"steps/total": {"tokens": 10, "x": 1.0, "most": 7.0, "y": 5.0}, "z": {"n": 3}}))
    before = StepSummary(Arrays.of(Layout((OLD,)), {"steps/total": {"tokens": 10, "x": 2.0, "most": 3.0}}))
    old = version_3.read(version_3.write(before), 3, later)
    assert version_3.read(version_3.write(new), 4, later) == new
    for both in (new.merge(old).arrays, old.merge(new).merge(new).arrays):
        assert both.record("steps/total").keys() == {"tokens", "x", "most"}
        assert both.record("z") == {}
        assert both.get("z/n") is None
    read_again = version_3.read(version_3.write(new.merge(old)), 4, later)
    assert read_again == new.merge(old)
    assert "y" not in read_again.merge(new).arrays.record("steps/total")


def test_shards_of_many_ranks_share_what_their_common_tables_come_to() -> None:
    common = ("batch", "gaps/total", "histograms/total", "sequence/total")
    schemes = [
        scheme_of(LAYOUT, (*common, *(f"breakdown/shard/{rank}/{part}" for part in ("total", "cross"))))
        for rank in range(3)
    ]
    plain = schemes[0].base
    assert runs(plain, schemes[0]) == tuple([Run(0, size, 0)] if size else [] for size in plain.sizes)
    assert len({id(scheme.base) for scheme in schemes}) == 1
    whole = union(tuple(schemes))
    for rank, scheme in enumerate(schemes):
        assert scheme.begins == schemes[0].begins
        assert all(scheme.spans[name] == span for name, span in plain.spans.items())
        assert scheme.under("breakdown") == (f"breakdown/shard/{rank}/total", f"breakdown/shard/{rank}/cross")
        for section, found in enumerate(runs(scheme, whole)):
            moved = {index: run.into + index - run.start for run in found for index in range(run.start, run.stop)}
            assert sorted(moved) == list(range(scheme.sizes[section]))
            for name, span in scheme.spans.items():
                if span.section == section:
                    assert [moved[index] for index in range(span.start, span.stop)] == [
                        *range(whole.spans[name].start, whole.spans[name].stop)
                    ]


#: Of each version that buffers were stored in, what `declared` gave when it was the newest.
DECLARED = {
    3: "3460c279f59f121e",
    4: "da258b04fa2ae465",
    5: "b4babfce868490ce",
    6: "6571d273571321de",
    7: "6a6ea6142359a92c",
}


def declared(version: int) -> str:
    """What decides where a number stands in a stored buffer of a version, and how it merges, in few characters."""
    rows = [
        (table.key, row.name, row.kind, row.shape, row.merge)
        for table in LAYOUT.tables
        for row in table.rows
        if row.since <= version
    ]
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]


@pytest.mark.parametrize("version", range(AS_ARRAYS, LAYOUT.version + 1))
def test_what_was_stored_once_stays_declared_as_it_was(version: int) -> None:
    assert declared(version) == DECLARED.get(version), (
        f"{declared(version)} is not what summaries of version {version} were stored by, which would be read wrong. "
        f"A row that is added needs a `since` beyond {max(DECLARED)}, and that version a line in DECLARED"
    )
