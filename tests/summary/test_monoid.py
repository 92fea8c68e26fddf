"""The laws of the step summary: identity, associativity, commutativity; counts exactly, float sums but for rounding."""

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st
from offpolicy_monitor.summary import MethodSummary, StepSummary, merge_all
from offpolicy_monitor.summary.sums import Sums, fraction, merge_sums

from tests.summary.summaries import SUMMARIES


def records(summary: StepSummary) -> dict[str, Sums]:
    """Every record of sums in a summary by its place."""
    found: dict[str, Sums] = {"batch": summary.batch, "cross": summary.cross}
    found |= {f"gaps.{name}": gap.sums for name, gap in summary.gaps.items()}
    found |= {f"tables.{name}": table for name, table in summary.tables.items()}
    return found | {f"methods.{name}": method.sums for name, method in summary.methods.items()}


def terms(parts: list[StepSummary], place: str, name: str) -> Iterator[float]:
    return (abs(records(part).get(place, {}).get(name, 0)) for part in parts)


def assert_equal_but_for_rounding(left: StepSummary, right: StepSummary, parts: list[StepSummary]) -> None:
    assert {n: g.histograms for n, g in left.gaps.items()} == {n: g.histograms for n, g in right.gaps.items()}
    assert {n: m.spec for n, m in left.methods.items()} == {n: m.spec for n, m in right.methods.items()}
    mine, theirs = records(left), records(right)
    assert mine.keys() == theirs.keys()
    for place, record in mine.items():
        assert record.keys() == theirs[place].keys()
        for name, value in record.items():
            other = theirs[place][name]
            if isinstance(value, int) and isinstance(other, int):
                assert value == other, (place, name)
            else:
                # A deviation is what squares leave of each other, and no more exact than they are.
                of = "log_ratio_square" if name == "log_ratio_deviation" else name
                assert abs(value - other) <= 1e-12 * sum(terms(parts, place, of)), (place, name)


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


def test_merging_leaves_both_sides_as_they_were() -> None:
    a, b = StepSummary({"tokens": 1}, {}, {}, {"tokens": 2}), StepSummary({"tokens": 10}, {}, {}, {"tokens": 20})
    assert a.merge(b) == StepSummary({"tokens": 11}, {}, {}, {"tokens": 22})
    assert (a.batch, a.cross, b.batch) == ({"tokens": 1}, {"tokens": 2}, {"tokens": 10})


def test_merging_nothing_is_empty() -> None:
    assert merge_all([]) == StepSummary()


def test_sums_minima_and_maxima_merge_each_in_their_way() -> None:
    kinds = {"a": "sum", "b": "min", "c": "max"}
    merged = merge_sums(kinds, {"a": 1, "b": 1.0, "c": 1.0}, {"a": 2, "b": -5.0, "c": -5.0})  # type: ignore[arg-type]
    assert merged == {"a": 3, "b": -5.0, "c": 1.0}
    assert merge_sums(kinds, {}, {"b": 4.0}) == {"b": 4.0}  # type: ignore[arg-type]


def test_a_fraction_of_nothing_is_absent() -> None:
    assert fraction(1, 0) is None
    assert fraction(1, 4) == 0.25


def test_rows_of_one_name_but_other_thresholds_merge_to_nothing_for_good() -> None:
    tight, loose = MethodSummary({"method": "opsm", "delta": 1e-4}), MethodSummary({"method": "opsm", "delta": 0.5})
    mixed = tight.merge(loose)
    assert mixed == MethodSummary(None)
    assert mixed.figures() is None
    assert mixed.merge(tight) == tight.merge(mixed) == MethodSummary(None)
    step = StepSummary(methods={"opsm": tight}).merge(StepSummary(methods={"opsm": loose}))
    assert step.figures()["methods"] == {}
