"""Recommended thresholds drop what they promise, at this length and at twice it, and know how sure they are."""

from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.measure.tables import OF_INGESTED
from offpolicy_monitor.methods import METHODS, PRESETS, parse_rows
from offpolicy_monitor.methods.curve import Curve
from offpolicy_monitor.summary import StepSummary
from offpolicy_monitor.summary.recommend import Sample, preset_states, recommend

ROWS = parse_rows(
    [
        {"name": "trm", "method": "trm", "gap": "total", "max": 1, "mean": 1},
        {"name": "veto", "method": "veto", "gap": "total", "lower": 0.1},
        {"name": "seq_error", "method": "seq_error", "gap": "total", "threshold": 2},
        {"name": "m2po", "method": "m2po", "gap": "total", "threshold": 1},
    ]
)


def batch_of(seed: int, length: int, sigma: float = 0.1, sequences: int = 600) -> RaggedBatch:
    source = np.random.default_rng(seed)
    count = sequences * length
    mu = -source.exponential(1.0, count) - 2.0
    pi = mu + source.normal(-(sigma**2) / 2, sigma, count)
    columns = {"sampling_logprobs": mu.astype(np.float32), "logprobs": pi.astype(np.float32)}
    advantages = source.choice([-1.0, 1.0], sequences).astype(np.float32)
    return RaggedBatch.from_positions(np.full(sequences, length), columns, {"advantages": advantages})


def kept(batch: RaggedBatch) -> StepSummary:
    return Measurer("cpu").measure(batch, ROWS, Origin(), OF_INGESTED)


def dropped(batch: RaggedBatch, row: dict[str, Any]) -> float:
    parsed = parse_rows([{"name": "one", "gap": "total", **row}])
    share: float = (
        Measurer("cpu").measure(batch, parsed, Origin(), ()).figures()["methods"]["one"]["masked_token_fraction"]
    )
    return share


CASES = [
    (("mask", "geometric", "ratio"), "upper", {"method": "mask", "level": "geometric"}),
    (("mask", "geometric", "ratio"), "lower", {"method": "mask", "level": "geometric"}),
    (("mask", "sequence", "ratio"), "upper", {"method": "mask", "level": "sequence"}),
    (("mask", "token", "ratio"), "upper", {"method": "mask"}),
    (("opsm", "geometric", ""), "delta", {"method": "opsm"}),
    (("ppo_clip", "token", ""), "lower", {"method": "ppo_clip", "upper": 1e9}),
    (("veto", "sequence", ""), "lower", {"method": "veto"}),
    (("ipo", "token", ""), "threshold", {"method": "ipo"}),
    (("trm", "sequence", ""), "max", {"method": "trm", "mean": 1e9}),
    (("trm", "sequence", ""), "mean", {"method": "trm", "max": 1e9}),
    (("seq_error", "sequence", ""), "threshold", {"method": "seq_error"}),
    (("m2po", "token", ""), "threshold", {"method": "m2po"}),
]


def curve_of(key: tuple[str, str, str], threshold: str) -> Curve:
    method, level, variant = key
    return METHODS[method].forms[level, variant].curves[threshold]


@pytest.mark.parametrize(("key", "parameter", "row"), CASES)
def test_the_threshold_drops_the_wanted_share_and_what_is_said_of_twice_the_length(
    key: tuple[str, str, str], parameter: str, row: dict[str, Any]
) -> None:
    batch = batch_of(1, 64)
    advice = recommend(Sample([kept(batch)]), "total", curve_of(key, parameter), 0.1)
    assert advice is not None
    at_threshold = row | {parameter: advice["threshold"]}
    # Figures of sequences of one length all lie in two or three bins, within which normality is a guess.
    guess = 0.02 if key[0] == "trm" else 0.0
    assert dropped(batch, at_threshold) == pytest.approx(0.1, abs=0.02 + guess)
    doubled = dropped(batch_of(2, 128), at_threshold)
    assert advice["masked_token_fraction_at_double_length"] == pytest.approx(doubled, abs=0.04 + 2 * guess)
    if advice["between"] is not None:
        more, less = sorted(
            (dropped(batch, at_threshold | {parameter: edge}) for edge in advice["between"]), reverse=True
        )
        assert less <= 0.1 <= more


def test_the_interval_is_a_point_for_one_step_and_wider_the_more_steps_differ() -> None:
    curve = curve_of(("mask", "token", "ratio"), "upper")
    alike = [kept(batch_of(seed, 32)) for seed in range(6)]
    apart = [kept(batch_of(seed, 32, sigma)) for seed, sigma in enumerate((0.05, 0.1, 0.2) * 2)]
    one, near, far = (recommend(Sample(steps), "total", curve, 0.01) for steps in (alike[:1], alike, apart))
    assert one and near and far
    assert one["low"] == one["threshold"] == one["high"]
    assert near["low"] < near["threshold"] < near["high"]
    assert far["high"] - far["low"] > 5 * (near["high"] - near["low"])


def test_where_no_threshold_drops_as_much_none_is_recommended() -> None:
    batch = batch_of(3, 16, sigma=0.0)
    curve = curve_of(("mask", "geometric", "ratio"), "upper")
    assert recommend(Sample([kept(batch)]), "total", curve, 0.1) is None
    assert recommend(Sample([]), "total", curve, 0.1) is None


def test_presets_are_inert_active_or_saturated_by_what_they_dropped() -> None:
    summary = Measurer("cpu").measure(batch_of(5, 64), PRESETS, Origin(), ())
    states = {state["name"]: state for state in preset_states(Sample([summary, summary]))}
    assert {name: states[name]["state"] for name in ("opsm_loose", "opsm", "gspo_total")} == {
        "opsm_loose": "inert",
        "opsm": "active",
        "gspo_total": "saturated",
    }
    assert states["opsm_loose"]["masked_token_fraction"] == 0.0
    assert states["opsm"]["steps"] == 2
    assert preset_states(Sample([summary, summary]), ("opsm", None)) == [states["opsm"]]
    assert "0 of 76,800 tokens" in states["opsm_loose"]["summary"]


def test_steps_whose_row_had_other_thresholds_are_left_out_of_its_state() -> None:
    batch = batch_of(5, 16)
    old, new = (
        Measurer("cpu").measure(
            batch, parse_rows([{"name": "one", "method": "mask", "gap": "total", "upper": upper}]), Origin(), ()
        )
        for upper in (1.0, 100.0)
    )
    [state] = preset_states(Sample([old, new]))
    assert (state["state"], state["steps"], state["upper"]) == ("inert", 1, 100.0)
