"""Standard deviations and correlations where the mean is large beside the spread, or probabilities are hardly any."""

import math
import statistics
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import parse_rows
from offpolicy_monitor.summary import StepSummary, from_bytes, merge_all, to_bytes

from tests.reference import COLUMNS, Sequence
from tests.strategies import packed

SHARDS = 4


def shard(d: np.ndarray, length: int = 500, base: float = -1.0) -> list[Sequence]:
    """Sequences of two policies that are d apart: mismatch d [T]."""
    old = (np.float32(base) + d.astype(np.float32)).astype(np.float32)
    mu = np.full(len(d), base, np.float32)
    columns = dict(zip(COLUMNS, (mu, old, old), strict=True))
    return [
        Sequence({name: column[begin : begin + length].tolist() for name, column in columns.items()}, [1] * length, 1.0)
        for begin in range(0, len(d), length)
    ]


def merged(shards: list[list[Sequence]], rows: Any = ()) -> StepSummary:
    """The merge of the shards' summaries, each read back from its stored form."""
    return merge_all(from_bytes(to_bytes(Measurer("cpu").measure(packed(sent), rows))) for sent in shards)


def mismatch(shards: list[list[Sequence]]) -> dict[str, Any]:
    figures: dict[str, Any] = merged(shards).figures()["gaps"]["mismatch"]
    return figures


def log_ratios(shards: list[list[Sequence]]) -> list[float]:
    """The float32 differences that the service takes, exactly."""
    pairs = [(s.logprobs["old_logprobs"], s.logprobs["sampling_logprobs"]) for sent in shards for s in sent]
    return [float(np.float32(a) - np.float32(b)) for left, right in pairs for a, b in zip(left, right, strict=True)]


@pytest.mark.parametrize(("mean", "std"), [(-200.0, 0.011), (30.0, 0.001), (-0.5, 1e-4), (0.001, 0.05)])
@pytest.mark.parametrize("shards", [1, SHARDS])
def test_the_spread_of_log_ratios_is_true_wherever_their_mean_lies(mean: float, std: float, shards: int) -> None:
    random = np.random.default_rng(5)
    sent = [shard(mean + std * random.standard_normal(2000)) for _ in range(shards)]
    expected = math.sqrt(statistics.pvariance(map(Fraction, log_ratios(sent))))
    assert mismatch(sent)["log_ratio_std"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("d", [-200.0, -0.1, 3e-4, 0.7, 79.0])
@pytest.mark.parametrize("shards", [1, SHARDS])
def test_a_constant_has_no_spread(d: float, shards: int) -> None:
    sent = [shard(np.full(4000, d), base=-90.0) for _ in range(shards)]
    figures = mismatch(sent)
    assert figures["log_ratio_std"] <= 1e-7 * abs(d)
    assert figures["probability_diff_std"] <= 1e-7 * figures["probability_diff_mean"]
    assert figures["sequence"]["geometric_ratio_std"] <= 1e-7 * figures["sequence"]["geometric_ratio_mean"]


def test_shards_at_different_means_have_the_spread_of_all_their_tokens() -> None:
    random = np.random.default_rng(6)
    sent = [shard(mean + 0.01 * random.standard_normal(1500)) for mean in (-100.0, -100.5, -101.0)]
    expected = math.sqrt(statistics.pvariance(map(Fraction, log_ratios(sent))))
    assert mismatch(sent)["log_ratio_std"] == pytest.approx(expected, rel=1e-6)


def test_a_constant_weight_has_no_spread() -> None:
    rows = parse_rows([{"method": "truncate", "upper": 1.7}])
    sent = [shard(np.full(4000, 3.0), base=-9.0)] * SHARDS
    [method] = merged(sent, rows).figures()["methods"].values()
    assert method["weight_std"] <= 1e-7 * method["weight_mean"]


@pytest.mark.parametrize("base", [-20.0, -80.0, -95.0, -103.0, -150.0, -330.0])
@pytest.mark.parametrize("shards", [1, SHARDS])
def test_probabilities_that_float32_cannot_hold_correlate_as_they_do(base: float, shards: int) -> None:
    random = np.random.default_rng(8)
    columns = []
    for _ in range(shards):
        mu = (base + random.standard_normal(1000)).astype(np.float32)
        columns.append((mu, (mu + 0.3 * random.standard_normal(1000)).astype(np.float32)))
    sent = [
        [Sequence(dict(zip(COLUMNS, (a.tolist(), b.tolist(), b.tolist()), strict=True)), [1] * 1000)]
        for a, b in columns
    ]
    p, q = (np.exp(np.concatenate(side).astype(np.float64) - base) for side in zip(*columns, strict=True))
    figures = mismatch(sent)
    assert figures["probability_correlation"] == pytest.approx(float(np.corrcoef(p, q)[0, 1]), abs=1e-5)
    if base > -300:
        assert figures["probability_diff_mean"] == pytest.approx(float(np.abs(p - q).mean()) * math.exp(base), rel=1e-5)


def test_probabilities_too_small_for_any_float_have_no_correlation() -> None:
    assert mismatch([shard(np.linspace(-0.1, 0.1, 100), 50, base=-5000.0)])["probability_correlation"] is None


def test_float64_log_probs_far_down_have_a_correlation_and_no_defect() -> None:
    old = [-200.0 + index / 100 for index in range(50)]
    mu = [-200.0 + (index % 7) / 100 for index in range(50)]
    sent = [Sequence(dict(zip(COLUMNS, (mu, old, old), strict=True)), [1] * 50)]
    figures = Measurer("cpu").measure(packed(sent, np.float64), ()).figures()["gaps"]["mismatch"]
    p, q = (np.exp(np.array(side) + 200) for side in (mu, old))
    assert figures["probability_correlation"] == pytest.approx(float(np.corrcoef(p, q)[0, 1]), rel=1e-9)


def test_a_shard_of_an_older_release_leaves_the_merge_without_the_new_sum_and_with_the_old_figure() -> None:
    new = merged([shard(np.linspace(-0.1, 0.1, 1000))])
    old = replace(new, arrays=new.arrays.lacking({"gaps/mismatch/log_ratio_deviation"}))
    expected = pytest.approx(new.figures()["gaps"]["mismatch"]["log_ratio_std"], rel=1e-5)
    for both in (new.merge(old), old.merge(new), old.merge(old), new.merge(old).merge(new)):
        assert "log_ratio_deviation" not in both.gaps["mismatch"].sums
        assert both.figures()["gaps"]["mismatch"]["log_ratio_std"] == expected
    assert StepSummary.empty().merge(new) == new.merge(StepSummary.empty()) == new
