"""Calibration of mu and decimal places: literals, the oracle of their formulas, and what healthy draws come to."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from offpolicy_monitor.batch import UNKNOWN_ORIGIN, RaggedBatch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.measure.tables import MAKERS, Maker
from offpolicy_monitor.summary.step import StepSummary, merge_all

from tests.diagnosis.model import drawn, normalised

MEASURER = Measurer("cpu")
CALIBRATION = [maker for maker in MAKERS if maker.name == "calibration"]


def measured(lengths: list[int], makers: Sequence[Maker] = MAKERS, **columns: object) -> StepSummary:
    given = {name: np.asarray(column, np.float32) for name, column in columns.items()}
    batch = RaggedBatch.from_positions(np.array(lengths), given, {})
    return MEASURER.measure(batch, (), UNKNOWN_ORIGIN, makers, worst=False)


def test_calibration_is_the_excess_of_surprise_over_entropy_with_sequences_as_witnesses() -> None:
    mu, entropy = [-1.0, -3.0, -0.5, np.nan, -2.5], [1.0, 2.0, 1.0, 1.0, 1.0]
    found = measured([2, 0, 3], sampling_logprobs=mu, old_logprobs=mu, entropy=entropy).step_figures()["calibration"]
    # X = 1 and 1 of n = 2 and 2 tokens: -1 + 1, 3 - 2; 0.5 - 1, 2.5 - 1
    assert (found["tokens"], found["excess"], found["entropy"], found["share"]) == (4, 0.5, 1.25, 0.4)
    assert "z" not in found  # equal sequences leave no error
    unequal = measured([2, 1], sampling_logprobs=[-1.0, -3.0, -0.5], old_logprobs=[-1.0, -3.0, -0.5], entropy=[1, 2, 1])
    mean, sums, lengths = 0.5 / 3, [1.0, -0.5], [2, 1]
    left = sum((x - mean * n) ** 2 for x, n in zip(sums, lengths, strict=True))
    assert unequal.step_figures()["calibration"]["z"] == pytest.approx(0.5 / math.sqrt(2 * left), rel=1e-6)


def test_calibration_of_shards_is_that_of_their_merge_and_absent_without_entropy() -> None:
    source = np.random.default_rng(0)
    mu, entropy = -source.exponential(1.0, 90), source.uniform(0.5, 1.5, 90)
    whole = measured([30, 20, 40], sampling_logprobs=mu, old_logprobs=mu, entropy=entropy)
    parts = [
        measured(lengths, sampling_logprobs=mu[part], old_logprobs=mu[part], entropy=entropy[part])
        for lengths, part in (([30, 20], slice(50)), ([40], slice(50, 90)))
    ]
    of_parts = merge_all(parts).step_figures()["calibration"]
    assert of_parts == pytest.approx(whole.step_figures()["calibration"], rel=1e-9)
    assert "calibration" not in measured([90], sampling_logprobs=mu, old_logprobs=mu).step_figures()


@pytest.mark.parametrize("temperature", [1.0, 0.8])
def test_healthy_draws_stay_within_four_and_a_temperature_that_is_not_reported_does_not(temperature: float) -> None:
    largest = 0.0
    for seed in range(40):
        source = np.random.default_rng(seed)
        log_mu = normalised(source.standard_normal((4000, 32)).astype(np.float32) * 3)
        chosen = drawn(normalised(log_mu / np.float32(temperature)), source)
        mu, entropy = np.take_along_axis(log_mu, chosen, 1)[:, 0], -(np.exp(log_mu) * log_mu).sum(1)
        found = measured([100] * 40, CALIBRATION, sampling_logprobs=mu, old_logprobs=mu, entropy=entropy)
        z = found.step_figures()["calibration"]["z"]
        largest = max(largest, abs(z)) if temperature == 1 else min(largest, z)
        assert (abs(z) < 4) if temperature == 1 else (z < -4), (seed, z)
    assert largest < 4


def test_decimal_places_are_counted_of_values_from_minus_two_to_minus_one() -> None:
    values = -np.random.default_rng(1).uniform(1.0, 2.0, 400)
    fine = measured([400], sampling_logprobs=values, old_logprobs=values).step_figures()["signature"]["decimals"]
    assert fine["tokens"] == 400 and fine["share"] < 0.02
    for places in (1, 2, 3, 4):
        rounded = np.round(values, places)
        found = measured([400], sampling_logprobs=values, old_logprobs=rounded).step_figures()["signature"]["decimals"]
        assert (found["column"], found["share"]) == ("old", 1.0)
        assert found["places"] <= places and (places > 2 or found["places"] == places)
