"""Cancellation, weights, gradient mass, anchors and length bias against plain float64 on ragged batches."""

import math
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS, parse_rows
from offpolicy_monitor.summary.step import merge_all


def ragged(seed: int, sequences: int = 200, per_token: bool = False) -> RaggedBatch:
    source = np.random.default_rng(seed)
    lengths = source.integers(1, 120, sequences)
    tokens = int(lengths.sum())
    columns: dict[str, Any] = {"sampling_logprobs": -source.exponential(1.0, tokens).astype(np.float32)}
    columns["old_logprobs"] = columns["sampling_logprobs"] + source.normal(0, 0.02, tokens).astype(np.float32)
    columns["logprobs"] = columns["old_logprobs"] + source.normal(0, 0.3, tokens).astype(np.float32)
    columns["old_logprobs"][:3] = np.nan
    advantages = source.normal(0, 1, tokens if per_token else sequences).astype(np.float32)
    per_sequence = {} if per_token else {"advantages": advantages}
    return RaggedBatch.from_positions(
        lengths, {**columns, **({"advantages": advantages} if per_token else {})}, per_sequence
    )


def gap_of(data: RaggedBatch, numerator: str, denominator: str) -> tuple[Any, Any, Any]:
    """d and A of the valid tokens in float64, and the sequence of each."""
    d = (data.columns[numerator] - data.columns[denominator]).astype(np.float64)
    owners = np.repeat(np.arange(data.sequences), np.diff(data.offsets))
    per_token = "advantages" in data.per_token
    advantages = data.columns["advantages"].astype(np.float64)
    advantages = advantages if per_token else advantages[owners]
    valid = np.isfinite(d)
    return d[valid], advantages[valid], owners[valid]


@pytest.mark.parametrize("per_token", [False, True])
def test_a_gap_has_the_weighted_figures_of_its_definition(per_token: bool) -> None:
    data = ragged(1, per_token=per_token)
    answer = Measurer("cpu").evaluate(data)["gaps"]
    pairs = {"mismatch": ("old_logprobs", "sampling_logprobs"), "total": ("logprobs", "sampling_logprobs")}
    for name, pair in pairs.items():
        d, weight, owners = gap_of(data, *pair)
        ratio, figures = np.exp(d), answer[name]
        mass = np.sort(np.abs(weight * ratio))[::-1]
        top = mass[: len(mass) // 100].sum() / mass.sum()
        assert figures["advantage_weighted_excess"] == pytest.approx(
            (weight * np.expm1(d)).sum() / np.abs(weight).sum(), rel=1e-5
        )
        assert figures["advantage_second_moment"] == pytest.approx((mass**2).sum() / (weight**2).sum(), rel=1e-5)
        assert figures["gradient_mass_top1"] == pytest.approx(top, rel=1 / 16)
        assert figures["length_budget"] == pytest.approx(0.6 / np.mean(np.expm1(d) - d), rel=1e-5)
        sums, sizes = np.bincount(owners, d), np.bincount(owners, np.abs(d))
        filled = sizes > 0
        cancelled = 1 - np.abs(sums[filled]) / sizes[filled]
        assert figures["sequence"]["cancellation"] == pytest.approx(cancelled.mean(), rel=1e-5)
        there = np.bincount(owners) > 0
        assert figures["sequence"]["vanishing_fraction"] == np.mean(sums[there] < math.log(0.1))


def test_the_top_of_a_heavy_tail_holds_its_share_within_the_bound() -> None:
    source = np.random.default_rng(3)
    columns = {"sampling_logprobs": np.full(50_000, -1.0, np.float32)}
    columns["logprobs"] = columns["sampling_logprobs"] + source.standard_t(3, 50_000).astype(np.float32)
    data = RaggedBatch.from_positions(np.full(100, 500), columns, {"advantages": np.ones(100, np.float32)})
    d = (columns["logprobs"] - columns["sampling_logprobs"]).astype(np.float64)
    mass = np.sort(np.exp(np.clip(d, -80, 80)))[::-1]
    got = Measurer("cpu").evaluate(data)["gaps"]["total"]["gradient_mass_top1"]
    if mass[0] < 2**24:
        assert got == pytest.approx(mass[:500].sum() / mass.sum(), rel=1 / 16)
    assert 0 < got <= 1


def test_anchor_disagreement_counts_tokens_that_the_other_anchor_decides_otherwise() -> None:
    data = ragged(5)
    rows = parse_rows(
        [
            {"name": "old", "method": "ppo_clip", "level": "token", "lower": 0.2, "upper": 0.2},
            {"name": "mu", "method": "ppo_clip", "level": "token", "lower": 0.2, "upper": 0.2, "gap": "total"},
            {"name": "icepop", "method": "mask", "level": "token", "lower": 0.5, "upper": 5.0},
        ]
    )
    methods = Measurer("cpu").measure(data, rows).figures()["methods"]
    joint = np.isfinite(data.columns["old_logprobs"])
    stale = (data.columns["logprobs"] - data.columns["old_logprobs"])[joint].astype(np.float64)
    total = (data.columns["logprobs"] - data.columns["sampling_logprobs"])[joint].astype(np.float64)
    sign = data.columns["advantages"][np.repeat(np.arange(data.sequences), np.diff(data.offsets))][joint]
    clipped = [((sign > 0) & (d > math.log(1.2))) | ((sign < 0) & (d < math.log(0.8))) for d in (stale, total)]
    wanted = np.mean(clipped[0] != clipped[1])
    assert wanted > 0
    assert methods["old"]["anchor_disagreement"] == pytest.approx(wanted, abs=2 / len(stale))
    assert methods["mu"]["anchor_disagreement"] == methods["old"]["anchor_disagreement"]
    assert "anchor_disagreement" not in methods["icepop"]


def drifting(lengths: Any) -> RaggedBatch:
    """A constant drift of 0.1 % per token: the product ratio grows with length, the geometric ratio does not."""
    tokens = int(lengths.sum())
    columns = {
        "sampling_logprobs": np.full(tokens, -1.0, np.float32),
        "old_logprobs": np.full(tokens, -0.999, np.float32),
    }
    return RaggedBatch.from_positions(lengths, columns, {})


def test_a_bound_on_products_is_biased_by_length_and_one_on_geometric_means_is_not() -> None:
    data = drifting(np.repeat([100, 400, 1600, 3200], 50))
    methods = Measurer("cpu").measure(data, PRESETS).figures()["methods"]
    biased, fair = methods["mis_sequence"]["length_bias"], methods["geometric_mask_wide"]["length_bias"]
    assert (biased["unit"], biased["shortest"], biased["longest"]) == ("sequences", 0.0, 1.0)
    assert biased["spearman"] == pytest.approx(2 / math.sqrt(5), rel=1e-6)  # halves of four equal groups
    assert biased["slope"] > 0
    assert (fair["spearman"], fair["shortest"], fair["longest"]) == (None, 0.0, 0.0)


def test_shards_merge_to_the_length_bias_of_the_whole() -> None:
    halves = [drifting(np.repeat([100, 1600], 20)), drifting(np.repeat([400, 3200], 20))]
    merged = Measurer("cpu").measure(halves[0], PRESETS).merge(Measurer("cpu").measure(halves[1], PRESETS))
    whole = Measurer("cpu").measure(drifting(np.repeat([100, 1600, 400, 3200], 20)), PRESETS)
    for name, figures in whole.figures()["methods"].items():
        assert merged.figures()["methods"][name].get("length_bias") == figures.get("length_bias"), name


def test_a_row_that_ran_on_a_part_of_the_shards_has_no_length_bias() -> None:
    batches = [drifting(np.repeat([100, 1600], 20)), drifting(np.repeat([400, 3200], 20))]
    some = [row for row in PRESETS if row.name in ("mis_sequence", "mis_token")]
    more = [*some, *parse_rows([{"name": "mine", "method": "mask", "level": "sequence", "upper": 2}])]
    measured = [Measurer("cpu").measure(data, rows) for data, rows in zip(batches, (some, more), strict=True)]
    methods = measured[0].merge(measured[1]).figures()["methods"]
    assert "length_bias" in measured[1].figures()["methods"]["mine"]
    assert ["length_bias" in methods[name] for name in ("mis_sequence", "mis_token", "mine")] == [True, True, False]
    assert methods["mine"]["tokens"] == 20 * (400 + 3200)
    assert methods["mine"]["masked_sequence_fraction"] == 0.5


@pytest.mark.parametrize("per_token", [False, True])
def test_updates_at_risk_are_counted_token_by_token(per_token: bool) -> None:
    data = ragged(7, per_token=per_token)
    data.columns["logprobs"][::50] -= 3.0
    gaps = Measurer("cpu").evaluate(data)["gaps"]
    d, advantage, owners = gap_of(data, "logprobs", "sampling_logprobs")
    p, q = (np.exp(data.columns[name].astype(np.float64)) for name in ("logprobs", "sampling_logprobs"))
    bad = (advantage < 0) & (q - p > 0.5)
    assert bad.any()
    assert gaps["total"]["bad_update_fraction"] == pytest.approx(bad.mean(), rel=1e-12)
    outward = advantage * d > 0
    assert gaps["total"]["outward_second_moment"] == pytest.approx((d[outward] ** 2).mean(), rel=1e-5)
    extreme = len(set(owners[np.abs(p - q) > 0.5].tolist())) / data.sequences
    assert 0 < extreme < 1
    assert gaps["total"]["sequence"]["extreme_fraction"] == pytest.approx(extreme, rel=1e-12)


def test_a_zero_that_the_trainer_does_not_find_certain_was_filled_in() -> None:
    columns = {
        "sampling_logprobs": np.array([0.0, 0.0, 0.0, -1.0, -0.0], np.float32),
        "old_logprobs": np.array([-0.01, -0.2, -3.0, -1.0, -5.0], np.float32),
    }
    data = RaggedBatch.from_positions(np.array([5]), columns, {})
    answer = Measurer("cpu").evaluate(data)
    assert (answer["suspect_tokens"]["exact_zero"], answer["zero_filled_tokens"]) == (4, 2)


def outliers_of(k3_scale: list[float], label: str, tokens: int = 40_000) -> dict[str, Any]:
    """The outliers of a step of one message an engine, whose log-ratios have these standard deviations."""
    source = np.random.default_rng(2)
    parts = []
    for index, scale in enumerate(k3_scale):
        mu = -source.exponential(1.0, tokens).astype(np.float32)
        columns = {"sampling_logprobs": mu, "old_logprobs": mu + source.normal(0, scale, tokens).astype(np.float32)}
        data = RaggedBatch.from_positions(np.full(tokens // 100, 100), columns, {})
        parts.append(Measurer("cpu").measure(data, (), Origin(None, 0, {label: f"e{index}"})))
    found: dict[str, Any] = merge_all(parts).step_figures()["outliers"]
    return found


def test_the_engine_that_stands_out_is_named_and_noise_or_another_environment_is_not() -> None:
    found = outliers_of([0.02, 0.02, 0.06, 0.02], "engine")["mismatch"]
    assert (found["dimension"], found["bucket"]) == ("label:engine", "e2")
    assert found["ratio"] == pytest.approx(9, rel=0.1)
    assert outliers_of([0.02, 0.021, 0.02], "engine")["mismatch"]["ratio"] == 1.0
    assert outliers_of([0.02, 0.06], "environment") == {}
