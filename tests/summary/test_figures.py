"""Figures are functions of the sums: known values, and absence where there is no denominator."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.summary import StepSummary
from offpolicy_monitor.summary.answer import rows_told
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.attribution import attribution
from offpolicy_monitor.summary.gap import bounded_exp, variance
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.method import SUMS
from offpolicy_monitor.summary.records import Records
from offpolicy_monitor.summary.rows import Row
from offpolicy_monitor.summary.stored.named import Parts, summary_of
from offpolicy_monitor.summary.sums import finite
from offpolicy_monitor.vocabulary import GAPS

from tests.summary.full import FULL


def of_row(row: dict[str, Any], sums: Mapping[str, float]) -> dict[str, Any]:
    """The figures of one method row by its sums."""
    (figures,) = rows_told([row], Records.of([sums], SUMS))
    return figures


def _nothing(row: Row) -> object:
    return np.full([int(size) for size in row.shape], {"min": np.inf, "max": -np.inf}.get(row.merge, 0))


def test_records_of_several_kinds_are_read_together_as_each_by_itself() -> None:
    arrays = FULL.arrays.without(["advantage/total", "advantage/total#updates"])
    kinds = tuple(tuple(f"{kind}/{gap}" for gap in GAPS) for kind in ("gaps", "advantage", "sequence"))
    for paths, records in zip(kinds, Records.of_kinds(arrays, kinds), strict=True):
        for name in LAYOUT.at(paths[0]).names:
            expected = [arrays.record(path).get(name, np.nan) for path in paths]
            assert np.array_equal(records[name], expected, equal_nan=True)
            assert np.array_equal(records[name], Records.at(arrays, paths)[name], equal_nan=True)


def test_the_empty_summary_has_counts_of_zero_and_nothing_else() -> None:
    assert StepSummary().figures() == {
        "tokens": 0,
        "sequences": 0,
        "empty_sequences": 0,
        "excluded_tokens": {"nonfinite": 0},
        "suspect_tokens": {"positive": 0, "exact_zero": 0},
        "zero_filled_tokens": 0,
        "gaps": {},
        "methods": {},
        "attribution": None,
    }


def test_a_gap_without_tokens_has_counts_of_zero_and_nothing_else() -> None:
    keys = ("gaps/total", "histograms/total")
    tables = {key: {row.name: _nothing(row) for row in LAYOUT.at(key).rows} for key in keys}
    figures = StepSummary(Arrays.of(LAYOUT, tables)).figures()["gaps"]["total"]
    assert (figures.pop("tokens"), figures.pop("sequences"), figures.pop("sequence")) == (0, 0, {})
    assert set(figures.values()) <= {0, None}
    assert not set(figures) & {"k1", "k3", "ess", "ratio_mean", "quantiles"}


def test_a_method_without_tokens_has_its_row_and_counts_of_zero() -> None:
    row = {"method": "opsm", "gap": "total", "level": "geometric", "delta": 0.01}
    sums = {"masked_tokens": 0, "masked_sequences": 0, "touched_sequences": 0}
    assert of_row(row, sums) == {**row, "tokens": 0, "sequences": 0, **sums}


def test_the_figures_of_a_method_are_fractions_of_its_sums() -> None:
    row = {"method": "mask", "gap": "total", "level": "token", "lower": 0.2, "upper": 5.0, "kl_tau": 0.5}
    sums = {
        "tokens": 8, "sequences": 4, "masked_tokens": 2, "masked_low_tokens": 2, "masked_high_tokens": 0,
        "masked_sequences": 1, "touched_sequences": 2, "advantage_mass": 10.0, "masked_advantage_mass": 4.0,
        "k3_kept": 0.6, "k3_masked": 3.0, "log_ratio_square_kept": 1.2, "log_ratio_square_masked": 8.0,
    }  # fmt: skip
    figures = of_row(row, sums)
    assert {name: figures[name] for name in row} == row
    assert figures["masked_token_fraction"] == 0.25
    assert figures["masked_sequence_fraction"] == 0.25
    assert figures["masked_advantage_mass"] == 0.4
    assert (figures["k3_kept"], figures["k3_masked"]) == (pytest.approx(0.1), 1.5)
    assert figures["k2_kept"] == pytest.approx(0.1)
    assert figures["kl_term_kept"] == pytest.approx(0.1)
    assert figures["kl_term_all"] == pytest.approx(0.575)


def test_means_over_kept_or_masked_tokens_are_absent_where_there_are_none() -> None:
    sums = {"tokens": 2, "sequences": 1, "masked_tokens": 2, "masked_sequences": 1, "touched_sequences": 1}
    sums |= {"k3_kept": 0, "k3_masked": 1, "log_ratio_square_kept": 0, "log_ratio_square_masked": 1}
    sums |= {"advantage_mass": 0, "masked_advantage_mass": 0}
    figures = of_row({"method": "mask", "kl_tau": 0.1}, sums)
    absent = ("k3_kept", "k2_kept", "kl_term_kept", "masked_advantage_mass")
    assert [figures[name] for name in absent] == [None] * 4
    assert figures["k3_masked"] == 0.5


def test_attribution_splits_the_second_moment() -> None:
    shares = attribution({"tokens": 3, "mismatch_square": 3.0, "staleness_square": 2.0, "mismatch_staleness": -0.5})
    assert shares == {"mismatch": 0.75, "staleness": 0.5, "interaction": -0.25}


@pytest.mark.parametrize(
    "cross",
    [
        {},
        {"tokens": 0},
        {"tokens": 5, "mismatch_square": 0.0, "staleness_square": 0.0, "mismatch_staleness": 0.0},
        {"tokens": 1, "mismatch_square": 1.0, "staleness_square": 1.0, "mismatch_staleness": -1.0},
    ],
)
def test_attribution_of_nothing_is_absent(cross: dict[str, float]) -> None:
    assert attribution(cross) is None


def test_means_of_what_was_not_sent_are_left_out() -> None:
    batch = {"tokens": 12, "sequences": 5, "empty_sequences": 1, "entropy_tokens": 4, "entropy": 2.0}
    batch |= {"lag_tokens": 4, "lag": 6.0, "lag_max": 3.0, "reward_sequences": 5, "reward": -1.0}
    figures = summary_of(Parts(batch)).figures()
    assert figures["sequence_length_mean"] == 3.0
    assert figures["policy_lag"] == {"mean": 1.5, "max": 3.0}
    assert (figures["entropy_mean"], figures["reward_mean"]) == (0.5, -0.2)
    few = summary_of(Parts({"tokens": 1, "sequences": 1}))
    assert not {"policy_lag", "entropy_mean", "reward_mean"} & set(few.figures())


def test_a_number_that_json_cannot_hold_is_absent() -> None:
    value = finite({"a": [math.nan, 1.0, math.inf], "b": {"c": -math.inf}, "d": "text", "e": 3})
    assert value == {"a": [None, 1.0, None], "b": {"c": None}, "d": "text", "e": 3}
    json.dumps(value, allow_nan=False)


def test_rounding_cannot_make_a_variance_negative() -> None:
    totals, squares = np.array([3 * 0.1, 6.0]), np.array([3 * 0.1 * 0.1, 14.0])
    least, other = variance(totals, squares, np.array([3.0, 3.0]))
    assert least >= 0
    assert other == pytest.approx(2 / 3)


def test_exponentials_are_bounded_at_eighty() -> None:
    assert bounded_exp(np.array([1e30, -1e30, 1.5])).tolist() == [math.exp(80.0), math.exp(-80.0), math.exp(1.5)]
