"""Every summary that measuring makes passes the checks; one that was changed passes only where it still is one."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.summary import StepSummary, from_bytes, to_bytes
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.checks import (
    InvalidSummaryError,
    Shard,
    bounds,
    check_figures,
    check_names,
    checked,
    tables,
)
from offpolicy_monitor.summary.checks.facts import Facts
from offpolicy_monitor.summary.checks.records import check_records
from offpolicy_monitor.summary.rows import Row, Table
from offpolicy_monitor.summary.tables.worst import COLUMNS, Sequences, Worst, together

from tests import strategies
from tests.summary.full import FULL, MEASURER, OTHER, SHARD, any_measurer, full_batch, measured


def passed(summary: StepSummary, shard: Shard = SHARD) -> StepSummary:
    """The summary, as it is checked when it is posted."""
    check_names(summary.arrays.scheme.keys, summary.specs, shard)
    return checked(summary, shard)


@settings(max_examples=150, deadline=None)
@given(strategies.sequences(), st.sampled_from(["torch", "any", "any"]))
def test_what_measuring_makes_passes(sent: list[Any], by: str) -> None:
    summary = measured(strategies.packed(sent), MEASURER if by == "torch" else any_measurer(keep_worst=2))
    found = passed(from_bytes(to_bytes(summary)))
    assert found.specs == summary.specs and found.worst == summary.worst
    assert_same(found.arrays, summary.arrays)


@pytest.mark.parametrize("by", ["torch", "any"])
@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**9), st.integers(0, 80), st.integers(1, 9), st.sampled_from([0.0, 1e-22, 1e-9, 1e-3, 0.1, 2, 30])
)
def test_what_measuring_makes_of_every_array_passes(
    by: str, seed: int, tokens: int, sequences: int, noise: float
) -> None:
    measurer = MEASURER if by == "torch" else any_measurer(keep_worst=2)
    passed(measured(full_batch(tokens, sequences, seed, noise), measurer))


def assert_same(one: Arrays, other: Arrays) -> None:
    """Every number of both, which a comparison row by row takes ten times as long for."""
    assert one.scheme.keys == other.scheme.keys and one.absent == other.absent
    assert one.buffer.tobytes() == other.buffer.tobytes()
    assert one.sparse.keys() == other.sparse.keys()
    assert all(np.array_equal(one.at(name), other.at(name)) for name in one.sparse)


def test_a_summary_with_every_array_passes_and_answers_figures() -> None:
    check_figures(passed(FULL))


def test_a_summary_of_a_release_that_kept_no_deviation_passes() -> None:
    old = replace(FULL, arrays=FULL.arrays.lacking(f"gaps/{gap}/log_ratio_deviation" for gap in FULL.gaps))
    found = passed(old).figures()["gaps"]["total"]["log_ratio_std"]
    assert found == pytest.approx(FULL.figures()["gaps"]["total"]["log_ratio_std"], rel=1e-6)


def test_a_sum_that_every_release_keeps_cannot_be_absent() -> None:
    for name in ("gaps/total/k3", "batch/tokens", "gaps/total", "shoes"):
        with pytest.raises(InvalidSummaryError) as caught:
            passed(StepSummary(replaced({}).lacking([name]), FULL.specs, FULL.worst))
        assert caught.value.path == name


def test_a_batch_without_sequences_or_without_tokens_passes() -> None:
    for lengths in ([], [0, 0]):
        empty = np.zeros(0, np.float32)
        batch = RaggedBatch.from_positions(np.array(lengths, np.int64), {"old_logprobs": empty, "logprobs": empty}, {})
        passed(measured(batch))


def test_versions_so_large_that_float64_rounds_their_lags_pass() -> None:
    logprobs, versions = -np.ones(44, np.float32), np.array([2358082126150683245])
    columns = {"old_logprobs": logprobs, "logprobs": logprobs}
    passed(measured(RaggedBatch.from_positions(np.array([44]), columns, {"policy_versions": versions})))


def test_what_an_older_shard_of_a_merge_did_not_keep_is_not_compared() -> None:
    merged = replaced({"batch/surprise_excess_square": 0.0, "gaps/total/log_ratio_max": -1.0})
    with pytest.raises(InvalidSummaryError):
        bounds.check_row(merged, *row_at("batch#calibration", "surprise_excess_square"))
    lacking = merged.lacking(["batch/calibrated_sequences", "gaps/total/log_ratio"])
    bounds.check_row(lacking, *row_at("batch#calibration", "surprise_excess_square"))
    bounds.check_row(lacking, *row_at("gaps/total", "log_ratio_max"))
    for part in {lacking.scheme.base, lacking.scheme}:
        found = bounds.relations(part, lacking.absent).doubtful(lacking)
        assert not {"surprise_excess_square", "log_ratio_max"} & {row.name for _, row in found}


def row_at(key: str, name: str) -> tuple[Table, Row]:
    table = FULL.arrays.scheme.tables[key]
    return table, table.by_name[name]


def replaced(rows: Mapping[str, Any]) -> Arrays:
    """The arrays of FULL with other values in some rows; at one index where a dot and a number follow the name."""
    arrays = FULL.arrays.copy()
    for name, value in rows.items():
        row, _, index = name.partition(".")
        target = arrays[row].reshape(-1)[int(index) : int(index) + 1] if index else arrays[row]
        target[...] = value(target) if callable(value) else value
    return arrays


def with_rows(rows: Mapping[str, Any]) -> StepSummary:
    return replace(FULL, arrays=replaced(rows))


def with_sparse(name: str, numbers: list[int]) -> StepSummary:
    """All that a row of no fixed length counts at the first of these numbers, and at no other."""
    arrays = FULL.arrays.copy()
    arrays.sparse[name] = np.array(numbers), np.array([arrays.at(name)[1].sum()])
    return replace(FULL, arrays=arrays)


def without(*keys: str) -> StepSummary:
    return replace(FULL, arrays=FULL.arrays.without(keys))


FOUND = FULL.worst.sequences
FIRST, KEPT = (f"worst.{FOUND.whole[row, 1]}" for row in (0, FOUND.kept[0, 0]))


def with_worst(name: str, value: Any, *at: int) -> StepSummary:
    """The worst sequences with another value at an index of one of COLUMNS."""
    changed = [column.copy() for column in FOUND.columns]
    changed[[column.name for column in COLUMNS].index(name)][at] = value
    return replace(FULL, worst=Worst.of(Sequences.of_columns(changed, FOUND.ids or [])))


def with_ids(*ids: Any) -> StepSummary:
    """The first of the worst sequences with other ids."""
    return replace(FULL, worst=Worst.of(replace(FOUND, ids=[*ids, *(FOUND.ids or [])[len(ids) :]])))


def with_spec(name: str, spec: Any) -> StepSummary:
    return replace(FULL, specs={**FULL.specs, name: spec})


NOTHING = float("nan")
#: A row that reweights.
WEIGHING = "tis_token"
#: What is changed, and the path of the refusal.
REFUSED: list[tuple[StepSummary, str]] = [
    (with_rows({"batch/tokens": 1}), "batch/exact_zero_tokens"),
    (with_rows({"batch/tokens": -1}), "batch/tokens"),
    (with_rows({"batch/sequences": 10**17}), "batch/sequences"),
    (with_rows({"batch/empty_sequences": 99}), "batch/empty_sequences"),
    (with_rows({"batch/zero_filled_tokens": 9999}), "batch/zero_filled_tokens"),
    (with_rows({"batch/reward": NOTHING}), "batch/reward"),
    (with_rows({"gaps/total/k3": -1.0}), "gaps/total/k3"),
    (with_rows({"gaps/total/k3": float("inf")}), "gaps/total/k3"),
    (with_rows({"gaps/total/js": 1e200}), "gaps/total/js"),
    (with_rows({"gaps/total/log_ratio_deviation": lambda sum: 1.01 * sum}), "gaps/total/log_ratio_deviation"),
    (with_rows({"gaps/total/log_ratio_deviation": 0.0}), "gaps/total/log_ratio_deviation"),
    (with_rows({"gaps/total/log_ratio_deviation": -1.0}), "gaps/total/log_ratio_deviation"),
    (with_rows({"gaps/total/tail_tokens": 10**6}), "gaps/total/tail_tokens"),
    (with_rows({"gaps/total/log_ratio_min": 50.0}), "gaps/total/log_ratio_min"),
    (with_rows({"gaps/total/log_ratio_min": NOTHING}), "gaps/total/log_ratio_min"),
    (with_rows({"gaps/total/log_ratio_max": float("inf")}), "gaps/total/log_ratio_max"),
    (with_rows({"gaps/total/log_ratio_square": 0.0}), "gaps/total/log_ratio_square"),
    (with_rows({"gaps/total/log_geometric_abs": 0.0}), "gaps/total/log_geometric"),
    (with_rows({"histograms/total/log_ratio": 0}), "histograms/total/log_ratio"),
    (with_rows({"histograms/total/log_ratio.5": -1}), "histograms/total/log_ratio"),
    (with_rows({"gaps/total/p_square": 0.0}), "gaps/total/p_square"),
    (with_rows({"gaps/total/p_q": 1e9}), "gaps/total/p_q"),
    (with_rows({"gaps/total/log_ratio_max": -1.0}), "gaps/total/log_ratio_max"),
    (with_rows({"gaps/total/log_product_max": float("-inf")}), "gaps/total/log_product_max"),
    (with_rows({"gaps/total/probability_diff_max": 0.0}), "gaps/total/probability_diff_max"),
    (with_rows({"gaps/total/geometric_excess_square": 0.0}), "gaps/total/geometric_excess_square"),
    (with_rows({"batch/lag_max": 0.0}), "batch/lag_max"),
    (with_rows({"batch/surprise_excess_square": 0.0}), "batch/surprise_excess_square"),
    (with_rows({"batch/surprise_excess_tokens": -1e9}), "batch/surprise_excess_tokens"),
    (with_rows({f"methods/{WEIGHING}/weight_max": 0.5}), f"methods/{WEIGHING}/weight_max"),
    (with_rows({f"methods/{WEIGHING}/weight_square": 0.0}), f"methods/{WEIGHING}/weight_square"),
    (with_rows({f"methods/{WEIGHING}/truncated_tokens": 10**6}), f"methods/{WEIGHING}/truncated_tokens"),
    (
        with_rows({"methods/opsm/touched_sequences": 1, "methods/opsm/masked_tokens": 0}),
        "methods/opsm/touched_sequences",
    ),
    (with_rows({"signature/middle/b_square": 0.0}), "signature/middle/b_square"),
    (with_rows({"signature/middle/b_d": 1e9}), "signature/middle/b_d"),
    (with_rows({"signature/neighbours/a_second_square": 0.0}), "signature/neighbours/a_second_square"),
    (with_rows({"signature/neighbours/forward": 1e9}), "signature/neighbours/forward"),
    (with_rows({"advantage/total/advantage_square": 0.0}), "advantage/total/advantage_square"),
    (with_rows({"breakdown/position/total/log_ratio_square.3": 0.0}), "breakdown/position/total/log_ratio_square"),
    (with_rows({"breakdown/position/total/log_ratio.3": -1e9}), "breakdown/position/total/log_ratio"),
    (with_rows({"breakdown/shard/3/cross/mismatch_staleness": 1e9}), "breakdown/shard/3/cross/mismatch_staleness"),
    (with_rows({"routing/total/changed/size": 1e-9}), "routing/total/changed/size"),
    (with_rows({"routing/total/trend/layers_square": 0}), "routing/total/trend/layers"),
    (with_rows({"cross/tokens": 10**6}), "cross/tokens"),
    (with_rows({"cross/mismatch_staleness": 1e9}), "cross/mismatch_staleness"),
    (with_rows({"methods/opsm/masked_tokens": 10**6}), "methods/opsm/masked_tokens"),
    (with_rows({"methods/opsm/tokens": 599}), "methods/opsm/tokens"),
    (with_rows({"methods/opsm/masked_advantage_mass": 1e9}), "methods/opsm/masked_advantage_mass"),
    (with_rows({"breakdown/position/total/tokens.0": 10**6}), "breakdown/position/total/tokens"),
    (with_rows({"breakdown/position/total/k3.0": NOTHING}), "breakdown/position/total/k3"),
    (with_rows({"breakdown/position/total/k3.60": 1.0}), "breakdown/position/total"),
    (with_rows({"breakdown/shard/3/total/tokens": 0}), "breakdown/shard/3/total"),
    (with_rows({"versions/spans/lag": NOTHING}), "versions/spans/lag"),
    (with_rows({"versions/spans/sequences": 1}), "versions/lag"),
    (with_rows({"sequence/total/cancelled": 1e6}), "sequence/total/cancelled"),
    (with_rows({"gradient/total.9": 1000}), "gradient/total"),
    (with_rows({"length/total/tokens.0": 1}), "length/total/tokens"),
    (with_rows({"signature/neighbours/pairs": 0}), "signature/neighbours/pairs"),
    (with_rows({"signature/grid/old/short": 10**6}), "signature/grid/old/short"),
    (with_rows({"anchor/opsm/differing": 10**6}), "anchor/opsm/differing"),
    (with_rows({"routing/total/counts/4/2/changed_layers": 10**9}), "routing/total/counts/4/2/changed_layers"),
    (with_rows({"routing/total/missing/4/2": 10**9}), "routing/total/counts/4/2"),
    (with_rows({"whatif/total/log_ratio/tokens.3": 99}), "whatif/total/log_ratio/tokens"),
    (with_rows({"whatif/total/log_ratio/mass.3": NOTHING}), "whatif/total/log_ratio/mass"),
    (with_rows({"masked/opsm/total/sequences.0": 1}), "masked/opsm/total/sequences"),
    (with_rows({"masked/grpo/staleness/tokens": lambda counts: np.roll(counts, 100)}), "masked/grpo/staleness/tokens"),
    (with_rows({"noise_floor/trainer/tokens": 10**6}), "noise_floor/trainer/tokens"),
    (with_rows({"noise_floor/trainer/exact_tokens": 10**3}), "noise_floor/trainer/exact_tokens"),
    (with_rows({"noise_floor/cross_engine/log_ratio": 1e9}), "noise_floor/cross_engine/log_ratio"),
    (
        with_rows({"noise_floor/engine_internal/log_ratio_square": 0.0}),
        "noise_floor/engine_internal/log_ratio_square",
    ),
    (
        with_rows({"noise_floor/split/engine_internal_cross_engine": 1e9}),
        "noise_floor/split/engine_internal_cross_engine",
    ),
    (with_sparse("longest/at", [0]), "longest/at"),
    (with_sparse("longest/at", [601]), "longest/at"),
    (with_sparse("versions/lag", [2**62]), "versions/lag"),
    (with_rows({"noise_floor/beside/tokens": 0}), "noise_floor/beside/tokens"),
    (without("noise_floor/cross_engine"), "noise_floor/split/tokens"),
    (with_rows({"support/total/tokens": 10**6}), "support/total/tokens"),
    (with_rows({"support/mismatch/log_ratio_square": 0.0}), "support/mismatch/log_ratio_square"),
    (without("batch"), "batch/calibrated_tokens"),
    (without("gaps/staleness"), "histograms/staleness/log_ratio"),
    (without("histograms/total"), "histograms/total"),
    (without("cross"), "breakdown/position/cross/tokens"),
    (without("methods/opsm"), "masked/opsm/total/sequences"),
    (without("versions/lag"), "versions/spans"),
    (without("versions/spans"), "versions/lag"),
    (without("sequence/total"), "sequence/total"),
    (without("gradient/total"), "advantage/total"),
    (without("routing/total/counts/4/2"), "routing/total/missing/4/2"),
    (with_spec("opsm", "x"), "specs.opsm"),
    (with_spec("shoes", {"gap": "total"}), "methods/shoes"),
    (with_spec("opsm", {"gap": "shoes"}), "methods/opsm"),
    (with_worst("whole", 10**6, -1, 1), "worst.1000000"),
    (with_worst("whole", 9, 0, 1), "worst.index"),
    (with_worst("whole", 500, 0, 2), "worst.tokens"),
    (with_worst("whole", FOUND.whole[1, 1], 0, 1), "worst.index"),
    (with_worst("whole", 4, 0, 0), f"{FIRST}.shard"),
    (with_worst("whole", 10**6, 0, 2), f"{FIRST}.tokens"),
    (with_worst("whole", 0, 0, 2), f"{FIRST}.tokens"),
    (with_worst("gaps", NOTHING, 0), f"{FIRST}.gaps"),
    (with_worst("gaps", 10**6, 0, 2, 0), f"{FIRST}.gaps.total.tokens"),
    (with_worst("gaps", 1.5, 0, 2, 0), f"{FIRST}.gaps.total.tokens"),
    (with_worst("gaps", NOTHING, 0, 2, 1), f"{FIRST}.gaps.total.log_geometric_ratio"),
    (with_worst("gaps", 50.0, 0, 2, 1), f"{FIRST}.gaps.total.log_geometric_ratio"),
    (with_worst("gaps", -1.0, 0, 2, 2), f"{FIRST}.gaps.total.k3_sum"),
    (with_worst("gaps", 1e30, 0, 2, 2), f"{FIRST}.gaps.total.k3_sum"),
    (with_worst("furthest/positions", 10**6, 0), f"{FIRST}.positions"),
    (with_worst("furthest/logprobs", float("inf"), 0, 0), f"{FIRST}.positions"),
    (with_worst("kept", 9, 0, 1), f"{KEPT}.columns"),
    (with_worst("kept", 0, 0, 1), f"{KEPT}.columns"),
    (with_worst("raw/positions", 10**6, 0), f"{KEPT}.columns"),
    (with_worst("raw/logprobs", float("inf"), 0, 1), f"{KEPT}.columns"),
    (with_worst("rewards/values", float("inf"), 0), f"{KEPT}.columns.rewards"),
    (with_ids(7), f"{FIRST}.id"),
    (with_ids("y" * 300), f"{FIRST}.id"),
    (with_ids("\ud800"), f"{FIRST}.id"),
    (replace(FULL, worst=Worst.of(together([FOUND] * 9))), "worst"),
    (replace(FULL, worst=Worst((lambda: FOUND,), 10**9)), "worst"),
]


@pytest.mark.parametrize(("summary", "path"), REFUSED, ids=[f"{n}-{path}" for n, (_, path) in enumerate(REFUSED)])
def test_a_summary_that_no_batch_has_is_refused_by_the_part_at_fault(summary: StepSummary, path: str) -> None:
    with pytest.raises(InvalidSummaryError) as caught:
        passed(summary)
    assert caught.value.path == path


@pytest.mark.parametrize(
    "key",
    ["shoes", "shoes/total", "gaps/shoes", "gaps/total#shoes", "breakdown/label:gpu/x/total", "breakdown/shard/4/total",
     "breakdown/shoes/total", "whatif/total/shoes/tokens", "whatif/total/log_ratio/sequences", "anchor/shoes",
     "masked/shoes/total/tokens", "methods/shoes", "routing/total/counts/5000/2", "routing/total/counts/04/2",
     "routing/total/missing/4/3", "routing/total/counts/5/2", "routing/shoes/counts/4/2", "signature/grid/new",
     "length/total/shoes", "sequence/x"],
)  # fmt: skip
def test_a_table_of_another_name_is_refused_before_any_array_is_made(key: str) -> None:
    with pytest.raises(InvalidSummaryError) as caught:
        check_names([*FULL.arrays.scheme.keys, key], FULL.specs, SHARD)
    assert caught.value.path == key
    with pytest.raises(InvalidSummaryError, match="repeat"):
        check_names([*FULL.arrays.scheme.keys, "batch"], FULL.specs, SHARD)


def test_the_shard_beside_a_summary_must_be_its_own() -> None:
    others: dict[str, Any] = {
        "number": 4, "labels": {}, "policy_version": None, "keep_worst": 1, "sequence_ids": ("x",) * 7, "longest_id": 1,
    }  # fmt: skip
    for name, other in others.items():
        with pytest.raises(InvalidSummaryError):
            passed(FULL, replace(SHARD, **{name: other}))


def test_more_tables_than_allowed_are_refused() -> None:
    with pytest.raises(InvalidSummaryError, match="over the limit of 10"):
        passed(FULL, replace(SHARD, most_tables=10))


ODD = st.sampled_from(
    [0, 1, -1, 2**62, 0.0, -0.0, 1.5, -1.5, 5e-324, 1e-300, 1e99, -1e99, 1e149, -1e149, 1e289, 1e308, NOTHING,
     float("inf")]
)  # fmt: skip
NAMES = sorted(FULL.arrays.scheme.spans)
SIZES = {name: FULL.arrays[name].size for name in NAMES}
LARGEST = {name: int(FULL.arrays[name].argmax()) for name in NAMES}
DROPPED = sorted({key for key in FULL.arrays.scheme.keys if key != "batch"})


@st.composite
def altered(draw: st.DrawFn) -> StepSummary:
    """FULL with odd values at some indices, and perhaps without some tables."""
    left = FULL.arrays.without(draw(st.lists(st.sampled_from(DROPPED), max_size=1)))
    arrays = left.copy() if left is FULL.arrays else left
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4)):
        value = draw(ODD)
        index = draw(st.one_of(st.integers(0, SIZES[name] - 1), st.just(LARGEST[name])))
        if name in arrays.scheme.spans:
            flat = arrays[name].reshape(-1)
            flat[index] = value if flat.dtype == np.float64 else int(value) if abs(value) < 2**63 else 7
    return replace(FULL, arrays=arrays)


def refuses(check: Callable[[], object]) -> bool:
    try:
        check()
    except InvalidSummaryError:
        return True
    return False


@settings(max_examples=100, deadline=None)
@given(altered())
def test_what_is_not_looked_at_one_by_one_holds(summary: StepSummary) -> None:
    arrays, facts = summary.arrays, Facts(summary, SHARD)
    parts = {arrays.scheme.base, arrays.scheme}
    rows = [(table, row) for table in arrays.scheme.tables.values() for row in table.rows]
    if not refuses(lambda: bounds.check_kinds(arrays)):
        found = [looked for part in parts for looked in bounds.relations(part, arrays.absent).doubtful(arrays)]
        assert len(found) < len(rows) / 4
        assert all(one in found for one in rows if refuses(partial(bounds.check_row, arrays, *one)))
    if not refuses(lambda: bounds.check_bounds(arrays)) and not refuses(lambda: check_records(summary, SHARD)):
        looked = list(tables.doubtful(facts))
        for check, path in (one for part in parts for one in tables.seen(part).looked):
            assert (check, path) in looked or not refuses(partial(check, facts, path, "/".join(path)))


@settings(max_examples=500, deadline=None)
@given(altered())
def test_whatever_is_changed_the_summary_is_refused_or_answers_figures(summary: StepSummary) -> None:
    try:
        check_figures(passed(summary))
    except InvalidSummaryError:
        return
    summary.step_figures()
    found = summary.merge(OTHER).merge(summary)
    to_bytes(found)
    found.step_figures()
    found = replace(found, worst=Worst())  # whose candidates are kept until somebody looks: half a million of them
    for _ in range(16):
        found = found.merge(found)
    to_bytes(found)
    found.step_figures()
