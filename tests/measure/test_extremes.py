"""Huge, tiny and odd values that a broken trainer sends: a finite answer, a storable summary, and true figures."""

import json
import math
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS, parse_rows
from offpolicy_monitor.summary import from_bytes, to_bytes

from tests.measure.rows import ROWS
from tests.reference import COLUMNS, Sequence
from tests.strategies import packed

LARGEST = 3.4028234663852886e38
HUGE = [-LARGEST, -1e30, -1e20, -1e15, -200.0, -100.0, -1e-30, 0.0, 50.0, 95.0, 1e30, LARGEST]


def sequence(mu: list[float], old: list[float], pi: list[float], advantage: float | list[float] = -1.0) -> Sequence:
    return Sequence(dict(zip(COLUMNS, (mu, old, pi), strict=True)), [1] * len(mu), advantage)


def figures_of(sent: list[Sequence], dtype: type[np.floating] = np.float32) -> dict[str, Any]:
    """The answer, after checking that JSON and the store can hold it."""
    measurer, batch = Measurer("cpu"), packed(sent, dtype)
    summary = measurer.measure(batch, ROWS)
    assert from_bytes(to_bytes(summary)) == summary
    answer = measurer.evaluate(batch, ROWS, "token")
    json.dumps(answer, allow_nan=False)
    return answer


def nulls(figures: dict[str, Any]) -> set[str]:
    inner = {f"sequence.{name}" for name, value in figures["sequence"].items() if value is None}
    return inner | {name for name, value in figures.items() if value is None}


@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize("column", [0, 1, 2])
def test_a_huge_float32_log_prob_leaves_every_figure_finite(value: float, column: int) -> None:
    columns = [[-1.0, -0.5], [-1.25, -0.5], [-1.0, -0.75]]
    columns[column][0] = value
    for gap in figures_of([sequence(*columns)])["gaps"].values():
        assert nulls(gap) <= {"probability_correlation"}


@pytest.mark.parametrize("value", [-1e39, -1e75, 1e39])
@pytest.mark.parametrize("column", [0, 1, 2])
def test_a_float64_log_prob_beyond_float32_can_be_answered_and_stored(value: float, column: int) -> None:
    columns = [[-1.0, -0.5], [-1.25, -0.5], [-1.0, -0.75]]
    columns[column][0] = value
    for gap in figures_of([sequence(*columns)], np.float64)["gaps"].values():
        assert nulls(gap) <= {"probability_correlation"}


@pytest.mark.parametrize("value", [-1e200, -1.7e308, 1e200, 1.7e308])
@pytest.mark.parametrize("other", [-1.0, 1.7e308, -1.7e308])
def test_a_float64_log_prob_whose_square_overflows_can_be_answered(value: float, other: float) -> None:
    sent = [sequence([value, -1.0], [other, -1.0], [-1.0, -1.0])]
    answer = Measurer("cpu").evaluate(packed(sent, np.float64), ROWS, "token")
    json.dumps(answer, allow_nan=False)
    assert answer["gaps"]["total"]["tokens"] == 2


@pytest.mark.parametrize("advantage", [3e38, -3e38, 1e-45])
def test_a_huge_or_tiny_advantage_can_be_answered_and_stored(advantage: float) -> None:
    answer = figures_of([sequence([-1.0] * 9, [-1.5] * 9, [-1.0] * 9, advantage)] * 3)
    assert {m["masked_advantage_mass"] for m in answer["methods"] if m["name"] == "mis_token"} == {0.0}


@pytest.mark.parametrize("d", [-16.0, -17.0, -18.0, -20.0, -30.0, -79.0])
def test_equal_ratios_far_below_one_have_an_effective_sample_size_of_one(d: float) -> None:
    gap = figures_of([sequence([-1.0] * 4, [-1.0 + d] * 4, [-1.0 + d] * 4)])["gaps"]["mismatch"]
    assert gap["ess"] == pytest.approx(1.0, rel=1e-6)
    assert gap["sequence"]["ess"] == pytest.approx(1.0, rel=1e-6)
    assert gap["ratio_mean"] == pytest.approx(math.exp(d), rel=1e-6, abs=0)


@pytest.mark.parametrize("total", [-5.0, -12.0, -16.0, -19.0])
def test_product_ratios_far_below_one_keep_their_effective_sample_size(total: float) -> None:
    sent = [sequence([-2.0] * 16, [-2.0 + total / 16] * 16, [-2.0] * 16), sequence([-1.0], [-1.0 + total - 1], [-1.0])]
    # v = e^total and e^(total - 1): ESS = (1 + 1/e)^2 / 2 / (1 + 1/e^2)
    expected = (1 + math.exp(-1)) ** 2 / 2 / (1 + math.exp(-2))
    got = figures_of(sent)["gaps"]["mismatch"]["sequence"]["ess"]
    assert got == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("d", [-0.5, -3.0, -5.0, -9.0, -15.0])
def test_the_mean_of_small_ratios_keeps_its_digits(d: float) -> None:
    old = [-1.0 + d * factor for factor in (1.0, 1.125, 0.875)]
    gap = figures_of([sequence([-1.0] * 3, old, old)])["gaps"]["mismatch"]
    expected = sum(math.exp(float(np.float32(a)) + 1.0) for a in old) / 3
    assert gap["ratio_mean"] == pytest.approx(expected, rel=1e-6, abs=0)


def test_a_truncation_without_an_upper_bound_has_finite_true_weights() -> None:
    row = parse_rows([{"method": "truncate", "lower": 0.5}])
    measurer, batch = Measurer("cpu"), packed([sequence([-51.0, -1.0], [-1.0, -1.0], [-1.0, -1.0])])
    (method,) = measurer.evaluate(batch, row)["methods"]
    r = math.exp(50.0)
    assert method["weight_mean"] == pytest.approx((r + 1) / 2, rel=1e-5)
    assert method["weight_std"] == pytest.approx((r - 1) / 2, rel=1e-5)
    assert method["weight_ess"] == pytest.approx(0.5, rel=1e-5)
    to_bytes(measurer.measure(batch, row))


def test_weights_that_are_all_zero_in_float32_have_a_true_effective_sample_size() -> None:
    row = parse_rows([{"method": "truncate", "upper": 2.0}])
    (method,) = Measurer("cpu").evaluate(packed([sequence([-1.0] * 2, [-31.0] * 2, [-1.0] * 2)]), row)["methods"]
    assert method["weight_mean"] == pytest.approx(math.exp(-30.0), rel=1e-5, abs=0)
    assert method["weight_ess"] == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("total", [-12.0, -30.0, -40.0, -70.0])
def test_product_weights_far_below_one_have_a_true_mean_and_effective_sample_size(total: float) -> None:
    row = parse_rows([{"method": "truncate", "level": "sequence", "upper": 2.0}])
    sent = [sequence([-9.0] * 8, [-9.0 + total / 8] * 8, [-9.0] * 8)] * 2
    (method,) = Measurer("cpu").evaluate(packed(sent), row)["methods"]
    assert method["weight_mean"] == pytest.approx(math.exp(total), rel=1e-5, abs=0)
    assert method["weight_ess"] == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize(
    "row",
    [
        {"method": "truncate", "level": "token", "upper": 1e39},
        {"method": "truncate", "level": "sequence", "upper": 1e308},
        {"method": "cispo", "lower": 1.0, "upper": 1e39},
        {"method": "cispo", "lower": 1e39, "upper": 1e308},
        {"method": "mask", "level": "token", "upper": 1e308},
        {"method": "mask", "level": "token", "statistic": "k1", "lower": -1e39, "upper": 1e39},
        {"method": "mask", "level": "token", "statistic": "k2", "upper": 1e39},
        {"method": "mask", "level": "sequence", "statistic": "k3", "upper": 1e308},
        {"method": "veto", "lower": 1e-308},
        {"method": "opsm", "delta": 1e39},
        {"method": "ppo_clip", "level": "token", "lower": 1e39, "upper": 1e39},
        {"method": "dppo", "lower": 1e39, "upper": 1e39},
        {"method": "dppo", "divergence": "kl", "lower": 1e39, "upper": 1e39},
        {"method": "ipo", "threshold": 1e39},
        {"method": "m2po", "threshold": 1e308},
        {"method": "trm", "max": 1e39, "mean": 1e39},
        {"method": "kpop", "phi": 1e39},
        {"method": "seq_error", "threshold": 1e39},
    ],
)
def test_a_threshold_beyond_float32_drops_nothing(row: dict[str, Any]) -> None:
    sent = [sequence([-50.0, -1.0], [-1.0, -50.0], [-2.0, -2.0])]
    (method,) = Measurer("cpu").evaluate(packed(sent), parse_rows([row]))["methods"]
    assert method["masked_tokens"] == 0


def test_no_gap_and_no_method_is_lost_to_a_log_prob_of_minus_1e30() -> None:
    answer = figures_of([sequence([-1e30, -1.0], [-1.0, -1.0], [-1.0, -1.5], 1.0)])
    mismatch = answer["gaps"]["mismatch"]
    assert mismatch["clamped_tokens"] == 1
    assert mismatch["log_ratio_max"] == pytest.approx(1e30, rel=1e-6)
    assert mismatch["k3"] == pytest.approx((math.expm1(80.0) - 1e30) / 2, rel=1e-6)
    assert mismatch["k2"] == pytest.approx(2.5e59, rel=1e-6)
    assert len(answer["methods"]) == len(ROWS)


def test_nan_and_infinity_are_excluded_and_counted_once_per_token() -> None:
    nan, inf = math.nan, math.inf
    answer = figures_of([sequence([nan, -1.0, -1.0, -1.0], [nan, -1.0, -inf, -1.0], [-1.0, inf, -1.0, -1.25])])
    assert answer["excluded_tokens"] == {"nonfinite": 3}
    assert answer["suspect_tokens"] == {"positive": 0, "exact_zero": 0}
    assert {gap: f["tokens"] for gap, f in answer["gaps"].items()} == {"mismatch": 2, "staleness": 1, "total": 2}
    assert answer["gaps"]["staleness"]["k1"] == 0.25


def test_positive_and_exactly_zero_log_probs_stay_in_and_are_suspect() -> None:
    answer = figures_of([sequence([0.0, -0.0, -1.0, 0.5], [0.0, -1.0, 0.25, 0.5], [-1.0, -1.0, 0.25, -1.0])])
    assert answer["suspect_tokens"] == {"positive": 2, "exact_zero": 2}
    assert answer["gaps"]["mismatch"]["tokens"] == 4


def test_presets_run_on_one_token() -> None:
    for d in (-20.0, -1.0, 0.0, 1.0, 20.0):
        measurer, batch = Measurer("cpu"), packed([sequence([-21.0], [-21.0 + d], [-21.0 + d])])
        assert measurer.measure(batch, PRESETS).figures()["gaps"]["mismatch"]["ess"] == pytest.approx(1.0)
