"""Every rule fires at its step count and not one step earlier, stops with the breach, and is quiet when healthy."""

import math
import re
from collections.abc import Iterable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.alerts import RULES, SEVERITIES, History, Rule, RuleState, Terms, evaluate, paths_of
from offpolicy_monitor.alerts.rule import LONG, SPARE
from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.figures import is_known
from offpolicy_monitor.vocabulary import PROFILES

from tests.detection.judged import row_of, summary_of
from tests.detection.pool import pool
from tests.detection.steps import Part
from tests.detection.tokens import within
from tests.diagnosis.model import drawn, normalised

BY_NAME = {rule.name: rule for rule in RULES}
ORDER = ("disabled", "silent", "quiet", "pending", "active")
TERMS = Terms(correction="token")

HEALTHY = {
    "gaps.mismatch.k3": 2e-4,
    "gaps.mismatch.probability_diff_mean": 1e-3,
    "gaps.mismatch.tail_fraction": 1e-4,
    "gaps.mismatch.ratio_mean": 1.0,
    "gaps.mismatch.chi2": 4e-4,
    "gaps.mismatch.tokens": 1e6,
    "gaps.mismatch.ess": 0.999,
    "gaps.total.log_ratio_mean": -5e-4,
    "gaps.mismatch.sequence.log_geometric_ratio_abs_mean": 1e-3,
    "gaps.mismatch.log_ratio_std": 0.02,
    "gaps.mismatch.sequences": 512.0,
    "gaps.mismatch.probability_correlation": 0.9995,
    "gaps.mismatch.multiplicative_error": 1.005,
    "policy_lag.max": 1.0,
    "entropy_mean": 0.9,
    "sequence_length_mean": 800.0,
    "sequence_length_max": 4000.0,
    "longest_fraction": 0.01,
    "routing.mismatch.agreement": 0.9,
    "tokens": 1e6,
    "sequences": 512.0,
    "excluded_tokens.nonfinite": 0.0,
    "suspect_tokens.positive": 0.0,
    "zero_filled_tokens": 0.0,
    "gaps.mismatch.exact_fraction": 0.2,
    "gaps.mismatch.abs_log_ratio_mean": 0.01,
    "gaps.total.abs_log_ratio_mean": 0.02,
    "gaps.mismatch.sequence.extreme_fraction": 0.003,
    "gaps.total.bad_update_fraction": 1e-5,
    "gaps.total.outward_second_moment": 2e-3,
    "correction.masked_token_fraction": 2e-3,
    "correction.masked_sequence_fraction": 0.0,
    "correction.length_bias.longest": 3e-3,
    "correction.length_bias.shortest": 2e-3,
    "attribution.mismatch": 0.3,
    "attribution.staleness": 0.6,
    "outliers.mismatch.ratio": 1.0,
    "policy_version": 1.0,
    "reward_mean": 0.5,
    "signature.lag.share": 0.05,
    "signature.lag.z": 0.5,
    "signature.learned.difference": 0.04,
    "signature.learned.z": 0.5,
    "signature.low_probability.k3_share": 0.1,
    "signature.low_probability.direction": -0.3,
    "calibration.tokens": 1e6,
    "calibration.excess": 5e-4,
    "calibration.entropy": 0.5,
    "calibration.z": 0.7,
}
#: The total gap, in the same places.
HEALTHY |= {path.replace("mismatch", "total"): value for path, value in HEALTHY.items() if path.startswith("gaps.mism")}
HEALTHY |= {"gaps.total.abs_log_ratio_mean": 0.02, "outliers.total.ratio": 1.0}

#: Rule -> the figures of a step that breaches its warning and no critical threshold.
BREACHES: dict[str, dict[str, float]] = {
    "MismatchKL": {"gaps.mismatch.k3": 1.2e-2},
    "ProbabilityDiff": {"gaps.mismatch.probability_diff_mean": 0.015},
    "RatioTail": {"gaps.mismatch.tail_fraction": 0.05},
    "RatioNotCalibrated": {"gaps.mismatch.ratio_mean": 0.99},
    "LowEffectiveSampleSize": {"gaps.mismatch.ess": 0.4},
    "ChiSquare": {"gaps.mismatch.chi2": 0.5},
    "TotalOffPolicy": {"gaps.total.log_ratio_mean": -0.05},
    "PerplexityGap": {"gaps.mismatch.sequence.log_geometric_ratio_abs_mean": 0.02},
    "Correlation": {"gaps.mismatch.probability_correlation": 0.97},
    "MultiplicativeError": {"gaps.mismatch.multiplicative_error": 1.07},
    "StaleData": {"policy_lag.max": 9.0},
    "RoutingAgreement": {"routing.mismatch.agreement": 0.86},
    "ExtremeSequences": {"gaps.mismatch.sequence.extreme_fraction": 0.02},
    "BadUpdates": {"gaps.total.bad_update_fraction": 2e-3},
    "SecondMoment": {"gaps.total.outward_second_moment": 0.2},
    "MaskRate": {"correction.masked_token_fraction": 0.02},
    "LengthBias": {"correction.length_bias.longest": 0.3, "correction.length_bias.shortest": 0.1},
    "ShardOutlier": {"outliers.mismatch.ratio": 4.0},
    "DataQuality": {"excluded_tokens.nonfinite": 3.0},
}


#: The same before the breach, where it must not be far above.
BEFORE = {"MismatchKL": {"gaps.mismatch.k3": 8e-3}}


def history(rows: Sequence[dict[str, float]]) -> History:
    return History.of([(10 + index, row) for index, row in enumerate(rows)], paths_of(RULES))


def states(name: str, rows: Sequence[dict[str, float]], terms: Terms = TERMS) -> dict[str, RuleState]:
    return {found.severity: found for found in evaluate([BY_NAME[name]], history(rows), terms)}


def state(name: str, rows: Sequence[dict[str, float]], profile: str = "dense_bf16", **terms: Any) -> RuleState:
    """The severity that matters: the worst that is active, else the worst that is pending."""
    given: dict[str, Any] = {"correction": "token", **terms}
    return worst(states(name, rows, Terms(profile, **given)).values())


def worst(found: Iterable[RuleState]) -> RuleState:
    return max(found, key=lambda one: (ORDER.index(one.state), SEVERITIES.index(one.severity)))


def as_they_come(name: str, rows: Sequence[dict[str, float]]) -> list[RuleState]:
    """The same after each of the steps, by a service that notes what it has computed of those before."""
    whole, found, noted = history(rows), list[RuleState](), dict[str, list[float | None]]()
    for count in range(1, len(rows) + 1):
        so_far = {path: column[:count] for path, column in whole.columns.items()}
        found.append(worst(evaluate([BY_NAME[name]], History(whole.steps[:count], so_far, noted), TERMS)))
    return found


def healthy(steps: int, seed: int = 0) -> list[dict[str, float]]:
    return list(_healthy(steps, seed))


@cache
def _healthy(steps: int, seed: int) -> list[dict[str, float]]:
    source = np.random.default_rng(seed)
    return [
        {path: value * (1 + 1e-3 * source.standard_normal() * (value != 1.0)) for path, value in HEALTHY.items()}
        for _ in range(steps)
    ]


@pytest.mark.parametrize("name", BREACHES)
def test_a_rule_fires_at_its_step_count_not_one_step_earlier_and_stops_with_the_breach(name: str) -> None:
    needed = BY_NAME[name].steps["warning"]
    before = [row | BEFORE.get(name, {}) for row in healthy(40)]
    breach = HEALTHY | BREACHES[name]
    early = state(name, before + [breach] * (needed - 1))
    assert early.state == ("pending" if needed > 1 else "quiet")
    fired = state(name, before + [breach] * needed)
    assert (fired.state, fired.severity, fired.breach_steps, fired.since_step) == ("active", "warning", needed, 50)
    assert fired.threshold is not None and fired.value is not None
    assert (fired.value > fired.threshold) == fired.rule.above
    better = [*[HEALTHY] * (SPARE if needed >= LONG else 0), HEALTHY]
    assert state(name, before + [breach] * needed + better).state == "quiet"
    assert state(name, before + [breach] * needed + better[:-1]).state == "active"


def test_five_breaches_of_the_last_seven_are_as_good_as_five_in_a_row() -> None:
    breach = HEALTHY | BREACHES["ShardOutlier"]
    rows = [*healthy(40), breach, breach, HEALTHY, breach, HEALTHY, breach]
    assert state("ShardOutlier", rows).state == "pending"
    found = state("ShardOutlier", [*rows, breach])
    assert (found.state, found.breach_steps, found.since_step) == ("active", 5, 50)
    assert state("ShardOutlier", [*rows, HEALTHY, breach]).state == "pending"
    assert state("ShardOutlier", rows[:-1]).state == "quiet"


@pytest.mark.parametrize("name", BY_NAME)
def test_no_rule_says_anything_of_healthy_steps(name: str) -> None:
    rows = healthy(300, seed=3)
    assert all(state(name, rows[:count]).state == "quiet" for count in (1, 4, 6, 26, 60, 300))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_without_its_inputs_is_silent_and_says_what_is_missing(rule: Rule) -> None:
    rows = healthy(30)
    for path in rule.inputs:
        without = [{name: value for name, value in row.items() if name != path} for row in rows[-10:]]
        assert state(rule.name, [*rows[:-9], *without[1:]]).state != "silent"
        found = state(rule.name, [*rows[:-10], *without])
        assert (found.state, found.missing) == ("silent", (path,))
    assert {found.state for found in evaluate([rule], history([]), Terms("fp8"))} == {"silent"}


def test_critical_needs_fewer_steps_and_wins_over_warning() -> None:
    rows = healthy(40) + [HEALTHY | {"gaps.mismatch.k3": 0.02}] * 3
    found = state("MismatchKL", rows)
    assert (found.state, found.severity, found.threshold, found.breach_steps) == ("active", "critical", 1e-2, 3)
    assert state("MismatchKL", rows, "fp4").state == "quiet"


def test_a_level_alone_is_critical_beyond_all_healthy_runs_only() -> None:
    def of(k3: float, **terms: Any) -> RuleState:
        return state("MismatchKL", [HEALTHY | {"gaps.mismatch.k3": k3}] * 40, **terms)

    assert of(8.9e-3).state == "quiet"
    assert (of(0.02).state, of(0.02).severity) == ("active", "warning")
    assert (of(0.04).state, of(0.04).severity) == ("active", "critical")
    assert of(0.02, overrides={"MismatchKL": {"critical": 0.015}}).severity == "critical"


def test_an_active_warning_is_told_while_a_critical_breach_is_young() -> None:
    before = [row | {"gaps.mismatch.k3": 8e-3} for row in healthy(40)]
    rows = before + [HEALTHY | {"gaps.mismatch.k3": 0.012}] * 6 + [HEALTHY | {"gaps.mismatch.k3": 0.04}]
    found = state("MismatchKL", rows)
    assert (found.state, found.severity, found.breach_steps) == ("active", "warning", 7)


def test_under_the_bitwise_profile_any_mismatch_is_one() -> None:
    assert state("MismatchKL", [HEALTHY | {"gaps.mismatch.k3": 1e-12}] * 3, "bitwise").severity == "critical"
    assert state("MismatchKL", [HEALTHY | {"gaps.mismatch.k3": 0.0}] * 9, "bitwise").state == "quiet"


def test_slow_drift_fires_against_the_runs_own_beginning_and_says_by_how_much() -> None:
    growing = [HEALTHY | {"gaps.mismatch.k3": 1e-4 * 1.05**step} for step in range(120)]
    states = as_they_come("MismatchDrift", growing)
    first = next(index for index, found in enumerate(states) if found.state == "active")
    assert states[first].severity == "warning" and states[-1].severity == "critical"
    value = states[first].value
    assert value is not None and 1.5 < value < 4
    assert re.fullmatch(
        r"Engine and trainer drift apart: k3 has grown [\d.]+ times since step \d+, to 0.000\d+; "
        r"a healthy run does so once in [\d,]+ steps\.",
        states[first].message or "",
    )


def test_drift_that_begins_in_the_first_steps_is_seen_and_does_not_become_the_baseline() -> None:
    rows = [HEALTHY | {"gaps.mismatch.k3": 1e-3 * (1 if step < 6 else 4)} for step in range(120)]
    told = [found.state for found in as_they_come("MismatchDrift", rows)]
    assert told[:7] == ["quiet"] * 7 and "active" in told[7:10]
    assert told[-1] == "active"


def test_one_spike_or_dip_is_no_drift_and_a_grown_mismatch_is_one_through_a_dip() -> None:
    spiky = [HEALTHY | {"gaps.mismatch.k3": 2e-2 if step % 12 == 8 else 5e-4} for step in range(60)]
    assert {found.state for found in as_they_come("MismatchDrift", spiky)} == {"quiet"}
    grown = [HEALTHY | {"gaps.mismatch.k3": 5e-4}] * 30 + [HEALTHY | {"gaps.mismatch.k3": 2e-3}] * 6
    assert state("MismatchDrift", [*grown, HEALTHY | {"gaps.mismatch.k3": 1e-4}]).state == "active"


def test_a_healthy_rise_by_two_fifths_in_24_steps_and_twice_in_300_is_no_drift() -> None:
    published = [6.3e-3] * 8 + [7.2e-3] * 8 + [8.1e-3] * 8 + [8.9e-3] * 8
    slow = [5e-4 * 2 ** (step / 300) for step in range(300)]
    for values in (published, slow):
        rows = [HEALTHY | {"gaps.mismatch.k3": value} for value in values]
        assert state("MismatchDrift", rows).state == "quiet"


def test_growth_at_new_weights_is_told_with_their_version() -> None:
    rows = healthy(30) + [HEALTHY | {"gaps.mismatch.k3": 2e-3, "policy_version": 7.0}] * 5
    assert "times since step 40, when the engine took version 7, to 0.002;" in (
        state("MismatchDrift", rows).message or ""
    )


def test_a_mismatch_that_grows_to_something_harmless_is_no_drift() -> None:
    rows = healthy(30) + [HEALTHY | {"gaps.mismatch.k3": 2e-4}] * 20
    small = [row | {"gaps.mismatch.k3": row["gaps.mismatch.k3"] / 5} for row in rows[:30]] + rows[30:]
    assert state("MismatchDrift", small).state == "quiet"
    assert state("MismatchDrift", small[:30] + [HEALTHY | {"gaps.mismatch.k3": 4e-4}] * 20).state == "active"


def test_single_spikes_warn_and_three_in_ten_steps_are_critical() -> None:
    spike = HEALTHY | {"gaps.mismatch.k3": 5e-3}
    once = [*healthy(60), spike]
    assert state("MismatchSpike", once).severity == "warning"
    assert state("MismatchSpike", [*once, *healthy(10)]).state == "quiet"
    assert state("MismatchSpike", [*once, HEALTHY, spike, HEALTHY, spike]).severity == "critical"
    assert state("MismatchSpike", [*healthy(60), HEALTHY | {"gaps.mismatch.k3": 9e-4}]).state == "quiet"


def test_a_rise_that_stays_is_one_spike_and_soon_none() -> None:
    stays = [HEALTHY | {"gaps.mismatch.k3": 5e-3}] * 20
    assert {state("MismatchSpike", [*healthy(60), *stays[:count]]).severity for count in range(1, 11)} == {"warning"}
    assert state("MismatchSpike", [*healthy(60), *stays[:11]]).state == "quiet"


def test_a_ratio_off_one_by_chance_is_no_miscalibration() -> None:
    few = HEALTHY | {"gaps.mismatch.ratio_mean": 0.9, "gaps.mismatch.chi2": 1.0, "gaps.mismatch.tokens": 400.0}
    assert state("RatioNotCalibrated", [few] * 5).state == "quiet"


def drawn_otherwise(excess: float, z: float, **figures: float) -> dict[str, float]:
    return HEALTHY | {"calibration.excess": excess, "calibration.z": z} | figures


def test_tokens_that_are_more_probable_than_their_entropy_warn_as_soon_as_ten_steps_together_are_no_chance() -> None:
    """At a z of 4 per step, n of ten steps of which the others have none are n 4 / sqrt(10) together."""
    calm, hot = (drawn_otherwise(x, x / 0.05, **{"calibration.tokens": 2e3}) for x in (1e-9, -0.2))
    assert state("SamplingNotCalibrated", [*[calm] * 40, *[hot] * 3]).state == "quiet"
    found = state("SamplingNotCalibrated", [*[calm] * 40, *[hot] * 4])
    assert (found.state, found.severity, found.since_step) == ("active", "warning", 53)
    error, allowed = 0.05 / math.sqrt(10), math.sqrt(2 * 2e-4)
    assert found.value == pytest.approx((0.08 - allowed * error * math.sqrt(2e4)) / 0.5)
    assert (
        found.message is not None
        and "0.42 nats in the mean, and the entropy of the same positions 0.5" in found.message
    )
    assert states("SamplingNotCalibrated", [*[calm] * 40, *[hot] * 4]).keys() == {"warning"}


@pytest.mark.parametrize(
    "figures",
    [
        {"calibration.z": -1.5},
        {"calibration.excess": -0.019},
        {"gaps.mismatch.k3": 0.02},
        {"gaps.total.k3": 0.02},
        {"gaps.mismatch.k3": -1.0},
    ],
    ids=["chance", "a small share", "a mismatch that allows it", "staleness that allows it", "clamped ratios"],
)
def test_an_excess_is_none_where_it_may_be_chance_or_the_gap_between_engine_and_trainer(
    figures: dict[str, float],
) -> None:
    hot = drawn_otherwise(-0.2, -4.0, **{"calibration.tokens": 2e3})
    assert state("SamplingNotCalibrated", [hot] * 10).state == "active"
    assert state("SamplingNotCalibrated", [hot | figures] * 10).state == "quiet"
    assert state("SamplingNotCalibrated", [hot] * 4).state == "quiet", "too few steps to tell"


def test_entropy_that_halves_to_little_within_fifty_steps_warns_and_below_a_fifth_of_a_nat_is_critical() -> None:
    falling = healthy(60) + [HEALTHY | {"entropy_mean": 0.4}] * 10
    assert state("EntropyCollapse", falling).severity == "warning"
    rewarded = [row | {"reward_mean": 0.3 + 0.01 * min(step, 30)} for step, row in enumerate(healthy(40))]
    lost = rewarded + [HEALTHY | {"entropy_mean": 0.1, "reward_mean": 0.3}] * 14
    assert state("EntropyCollapse", lost).severity == "critical"
    learning = [row | {"entropy_mean": 2.1} for row in healthy(60)] + [HEALTHY | {"entropy_mean": 0.6}] * 10
    assert state("EntropyCollapse", learning).state == "quiet"


def test_entropy_that_falls_while_rewards_rise_is_learning() -> None:
    def rows(reward: float) -> list[dict[str, float]]:
        return [
            row | {"entropy_mean": 0.4 * 0.97**step, "reward_mean": 0.5 + reward * step}
            for step, row in enumerate(healthy(100))
        ]

    assert state("EntropyCollapse", rows(0.004)).state == "quiet"
    assert state("EntropyCollapse", rows(0.0)).severity == "warning"


def test_without_rewards_entropy_warns_at_most() -> None:
    rows = [row | {"entropy_mean": 0.4 * 0.95**step} for step, row in enumerate(healthy(100))]
    without = [{path: value for path, value in row.items() if path != "reward_mean"} for row in rows]
    assert (state("EntropyCollapse", without).state, state("EntropyCollapse", without).severity) == (
        "active",
        "warning",
    )


def test_rewards_that_fall_below_what_the_run_had_reached_are_a_collapse() -> None:
    source = np.random.default_rng(2)

    def rows(lost: float) -> list[dict[str, float]]:
        means = [min(0.8, 0.4 + 0.01 * step) - (lost if step >= 80 else 0.0) for step in range(110)]
        return [HEALTHY | {"reward_mean": mean + 0.01 * source.standard_normal()} for mean in means]

    assert state("RewardCollapse", rows(0.0)).state == "quiet"
    half = state("RewardCollapse", rows(0.2))
    assert (half.state, half.severity) == ("active", "warning") and half.value == pytest.approx(0.5, abs=0.1)
    assert state("RewardCollapse", rows(0.4)).severity == "critical"
    assert "the share of its gain in reward that the run has lost again is 0." in (half.message or "")


TOTAL_ALONE = {path: value for path, value in HEALTHY.items() if ".mismatch." not in path}


def test_a_run_without_pi_old_is_judged_by_the_total_gap_which_warns_at_most_where_data_may_be_stale() -> None:
    rows = [TOTAL_ALONE] * 30 + [TOTAL_ALONE | {"gaps.total.k3": 0.05}] * 5
    found = states("MismatchKL", rows)
    assert (found["warning"].state, found["critical"].state) == ("active", "silent")
    assert found["critical"].missing == ("gaps.mismatch.k3",)
    assert (found["warning"].message or "").endswith("since the run sends no old_logprobs: staleness is included.")
    unknown = [{path: value for path, value in row.items() if path != "policy_lag.max"} for row in rows]
    assert states("MismatchKL", unknown)["critical"].state == "silent"
    fresh = [row | {"policy_lag.max": 0.0} for row in rows]
    assert states("MismatchKL", fresh)["critical"].state == "active"


def test_the_total_gap_is_not_looked_at_while_a_run_has_mismatch() -> None:
    rows = [HEALTHY | {"gaps.total.k3": 0.05}] * 40
    assert state("MismatchKL", rows).state == "quiet"
    without = [{path: value for path, value in row.items() if path != "gaps.mismatch.k3"} for row in rows]
    assert state("MismatchKL", without).state == "silent"


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.half == "mismatch"], ids=attrgetter("name"))
def test_every_mismatch_rule_falls_back_to_the_total_gap_but_the_one_on_experts(rule: Rule) -> None:
    found = {state.state for state in states(rule.name, [TOTAL_ALONE | {"policy_lag.max": 0.0}] * 30).values()}
    assert found == ({"silent"} if rule.name == "RoutingAgreement" else {"quiet"})


def test_a_shard_that_stands_out_is_told_of_without_pi_old_too() -> None:
    rows = [TOTAL_ALONE | {"policy_lag.max": 0.0, "outliers.total.ratio": 12.0}] * 12
    assert states("ShardOutlier", rows)["critical"].state == "active"


@pytest.mark.parametrize("length", [5, 100])
def test_sequences_are_apart_only_where_noise_that_is_independent_does_not_make_it(length: int) -> None:
    source = np.random.default_rng(length)

    def row(bias: float) -> dict[str, float]:
        d = bias * np.sign(source.standard_normal((64, 1))) + 0.08 * source.standard_normal((64, length))
        prefix, measured = (
            "gaps.mismatch.",
            {"tokens": float(d.size), "sequences": 64.0, "log_ratio_std": float(d.std())},
        )
        apart = float(np.abs(d.mean(1)).mean())
        found = HEALTHY | {f"{prefix}{name}": value for name, value in measured.items()}
        return found | {f"{prefix}sequence.log_geometric_ratio_abs_mean": apart}

    noisy, biased = ([row(bias) for _ in range(7)] for bias in (0.0, 0.1))
    assert state("PerplexityGap", noisy).state == "quiet"
    assert (state("PerplexityGap", biased).state, state("PerplexityGap", biased).severity) == ("active", "critical")
    assert (min(row["gaps.mismatch.sequence.log_geometric_ratio_abs_mean"] for row in noisy) > 0.01) == (length == 5)


def test_one_extreme_sequence_of_sixteen_may_be_chance_and_two_are_not() -> None:
    def rows(share: float) -> list[dict[str, float]]:
        return [HEALTHY | {"sequences": 16.0, "gaps.mismatch.sequence.extreme_fraction": share}] * 5

    assert state("ExtremeSequences", rows(1 / 16)).state == "quiet"
    assert state("ExtremeSequences", rows(2 / 16)).severity == "critical"


def test_answers_that_double_in_length_are_a_surge() -> None:
    rows = healthy(200) + [HEALTHY | {"sequence_length_mean": 1600.0}] * 40
    assert state("LengthSurge", rows).state == "active"


def capped(share: float, steps: int, length: float = 4096.0) -> list[dict[str, float]]:
    return [HEALTHY | {"sequence_length_max": length, "longest_fraction": share}] * steps


def test_a_length_that_nothing_exceeds_in_ten_steps_is_a_cap_and_half_of_the_answers_at_it_a_warning() -> None:
    assert state("Truncation", [*healthy(30), *capped(0.6, 13)]).state == "pending"
    assert state("Truncation", [*healthy(30), *capped(0.6, 14)]).severity == "warning"
    assert state("Truncation", [*healthy(30), *capped(0.95, 14)]).severity == "critical"
    longer = capped(0.6, 1, length=5000.0)
    assert state("Truncation", [*capped(0.6, 14), *longer, *capped(0.6, 9)]).state != "active"


def test_few_answers_at_the_longest_length_are_not_cut() -> None:
    assert state("Truncation", capped(0.4, 40)).state == "quiet"


def test_answers_that_are_all_cut_are_critical_where_they_have_ended_earlier_before() -> None:
    found = state("Truncation", [*healthy(3), *capped(1.0, 14)])
    assert (found.state, found.severity) == ("active", "critical")
    assert found.message == (
        "Many answers are cut off before they end: 100% of them have 4,096 tokens, and none has had more."
    )


def test_answers_that_have_always_been_of_one_length_are_a_warning_that_says_how_to_end_it() -> None:
    assert state("Truncation", capped(1.0, 13)).state == "pending"
    found = state("Truncation", capped(1.0, 40))
    assert (found.state, found.severity, found.since_step) == ("active", "warning", 19)
    assert found.message == (
        "All answers have 4,096 tokens, in each of 10 steps: they are cut off there, or all of one length, or sent "
        "with their padding and no mask. Say which by PATCH: length_cap is what they may have at most, or more than "
        "they have where nothing is cut off."
    )
    assert state("Truncation", capped(1.0, 40), length_cap=4097).state == "quiet"
    assert state("Truncation", capped(1.0, 40, length=127.0)).state == "quiet"
    assert state("Truncation", [*capped(0.9, 1, length=20.0), *capped(1.0, 20, length=20.0)]).severity == "critical"
    assert state("Truncation", capped(1.0, 40), overrides={"Truncation": {"critical": 0.9}}).severity == "critical"


def test_a_run_that_says_how_long_answers_may_be_is_judged_by_that_from_the_first_step_on() -> None:
    assert state("Truncation", capped(1.0, 5), length_cap=4096).severity == "critical"
    assert state("Truncation", capped(0.9, 40), length_cap=8192).state == "quiet"
    assert states("Truncation", capped(0.6, 5), Terms(length_cap=4096))["warning"].value == 0.6


def test_steps_without_the_figure_neither_count_nor_break_a_breach() -> None:
    breach = HEALTHY | BREACHES["MismatchKL"]
    hole = {path: value for path, value in HEALTHY.items() if path != "gaps.mismatch.k3"}
    before = [row | BEFORE["MismatchKL"] for row in healthy(20)]
    found = state("MismatchKL", [*before, breach, breach, hole, breach, breach, breach])
    assert (found.state, found.breach_steps) == ("active", 5)


def test_figures_are_found_nested_as_in_answers_or_by_path() -> None:
    rows: list[tuple[int, dict[str, Any]]] = [(3, {"gaps": {"mismatch": {"k3": 0.5}}}), (4, {"gaps.mismatch.k3": 0.25})]
    assert list(History.of(rows, ["gaps.mismatch.k3"]).column("gaps.mismatch.k3")) == [0.5, 0.25]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_has_figures_that_exist_and_thresholds_that_grow_worse(rule: Rule) -> None:
    assert all(is_known(path) for path in rule.inputs if path != "policy_version")
    assert rule.source and rule.summary and rule.expression
    for profile in PROFILES:
        warning, critical = rule.threshold("warning", profile), rule.threshold("critical", profile)
        if warning is not None and critical is not None:
            assert critical >= warning if rule.above else critical <= warning


def aged(lags: Sequence[float], versions: Sequence[float]) -> list[dict[str, float]]:
    return [
        HEALTHY | {"policy_lag.max": lag, "policy_version": version}
        for lag, version in zip(lags, versions, strict=True)
    ]


def test_a_lag_of_optimizer_steps_counts_by_how_many_of_them_a_rollout_has() -> None:
    within = aged([15.0] * 20, [16.0 * step + 15 for step in range(20)])
    assert {state("StaleData", within[:count]).state for count in range(1, 21)} == {"quiet"}
    found = state("StaleData", [*within, *aged([15.0 + 16 * 9], [16.0 * 20 + 15])])
    assert (found.state, found.severity) == ("active", "warning") and found.value == pytest.approx(9.9375)
    missing = [row for step, row in enumerate(within) if step != 10]
    assert state("StaleData", missing).state == "quiet"


def test_a_lag_of_weight_syncs_counts_as_it_is() -> None:
    assert state("StaleData", aged([12.0] * 20, [float(step) for step in range(20)])).value == 12
    seldom = [float(step // 4) for step in range(20)]
    assert state("StaleData", aged([12.0] * 20, seldom)).value == 12
    uneven = [3.0 * step + step % 2 for step in range(20)]
    assert state("StaleData", aged([12.0] * 20, uneven)).value == 12
    without = [{path: value for path, value in row.items() if path != "policy_version"} for row in aged([12.0], [0.0])]
    assert state("StaleData", without).value == 12


def test_a_correction_may_mask_as_much_as_its_kind_does() -> None:
    row = HEALTHY | {"correction.masked_token_fraction": 0.3, "correction.masked_sequence_fraction": 0.3}
    found = {kind: state("MaskRate", [row] * 5, correction=kind) for kind in ("token", "sequence", "gspo", "grpo")}
    assert {kind: (one.state, one.severity) for kind, one in found.items()} == {
        "token": ("active", "critical"),
        "sequence": ("active", "warning"),
        "gspo": ("quiet", "critical"),
        "grpo": ("active", "critical"),
    }


def test_a_correction_that_masks_less_while_drift_grows_is_blind_and_one_that_follows_it_is_not() -> None:
    def rows(mask: float) -> list[dict[str, float]]:
        return [
            row
            | {
                "gaps.total.abs_log_ratio_mean": 0.02 * 1.02**step,
                "correction.masked_token_fraction": 1e-3 * mask**step,
            }
            for step, row in enumerate(healthy(60))
        ]

    assert state("MaskBlind", rows(0.98)).state == "active"
    assert state("MaskBlind", rows(1.02)).state == "quiet"


def test_the_half_that_dominates_is_named_only_while_the_data_is_off_policy() -> None:
    stale = HEALTHY | {"attribution.staleness": 0.9, "attribution.mismatch": 0.05}
    assert state("StalenessDominates", [stale] * 6).state == "quiet"
    found = state("StalenessDominates", [stale | {"gaps.total.log_ratio_mean": -0.05}] * 5)
    assert (found.state, found.severity, found.value) == ("active", "info", 0.9)


def test_a_mismatch_of_exactly_zero_is_bad_data_but_under_the_bitwise_profile() -> None:
    copied = HEALTHY | {"gaps.mismatch.exact_fraction": 1.0}
    assert state("DataQuality", [copied]).severity == "critical"
    assert state("DataQuality", [copied], "bitwise").state == "quiet"


def test_zeros_are_filled_in_unless_the_mean_ratio_misses_more_than_they_could() -> None:
    zeros = {"tokens": 2013.0, "zero_filled_tokens": 223.0, "gaps.mismatch.tail_fraction": 0.05}
    missing = {**zeros, "gaps.mismatch.ratio_mean": 1 - 0.6 * 223 / 2013}
    assert state("DataQuality", [missing]).severity == "critical"
    nucleus = {**zeros, "gaps.mismatch.ratio_mean": 0.8}
    assert state("DataQuality", [nucleus]).state == "quiet"


def test_zeros_of_tokens_that_the_trainer_finds_likely_are_nuclei_of_one_token() -> None:
    zeros = {"tokens": 2013.0, "zero_filled_tokens": 223.0, "gaps.mismatch.ratio_mean": 0.93}
    assert state("DataQuality", [{**zeros, "gaps.mismatch.tail_fraction": 1e-3}]).state == "quiet"
    assert state("DataQuality", [{**zeros, "gaps.mismatch.tail_fraction": 0.02}]).severity == "critical"


@pytest.mark.parametrize("share", [0.6, 0.8, 0.9])
def test_no_nucleus_is_bad_data_and_zeros_that_were_filled_in_are(share: float) -> None:
    logits, source = pool().logits[:8000], np.random.default_rng(0)
    engine, trainer = normalised(within(logits, share)), normalised(logits)
    chosen = drawn(engine, source)
    mu, old = (np.take_along_axis(values, chosen, 1)[:, 0].astype(np.float32) for values in (engine, trainer))
    alone = np.where(mu > -1e-6, 0, mu)
    assert state("DataQuality", [row_of(summary_of(parts_of(alone, old)), 0)]).state == "quiet"
    filled = np.where(source.random(8000) < 0.1, 0, old)
    assert state("DataQuality", [row_of(summary_of(parts_of(filled, old)), 0)]).severity == "critical"


def parts_of(mu: Any, old: Any) -> list[Part]:
    columns = {"sampling_logprobs": mu.astype(np.float32), "old_logprobs": old.astype(np.float32)}
    return [(RaggedBatch.from_positions(np.full(80, 100), columns, {}), Origin(0, 0, {}))]


def test_signs_of_one_cause_are_no_risk_of_collapse_and_those_of_several_are() -> None:
    ess = HEALTHY | {"gaps.mismatch.ess": 0.4}
    bad = HEALTHY | {"gaps.total.bad_update_fraction": 2e-3}
    spike = HEALTHY | {"gaps.mismatch.k3": 5e-3}
    of_one = [*healthy(30), *[ess] * 5, *[bad] * 3, spike]
    assert (state("CollapseRisk", of_one).state, state("CollapseRisk", of_one).value) == ("quiet", 1.0)
    longer = [*of_one, *[HEALTHY | {"sequence_length_mean": 1300.0}] * 12]
    assert state("LengthSurge", longer).severity == "warning"
    assert (state("CollapseRisk", longer).state, state("CollapseRisk", longer).value) == ("quiet", 2.0)


def test_a_cause_whose_sign_is_critical_needs_one_other_to_be_a_risk_of_collapse() -> None:
    lost = HEALTHY | {"gaps.mismatch.ess": 0.1}
    alone = [*healthy(30), *[lost] * 12]
    assert (state("CollapseRisk", alone).state, state("CollapseRisk", alone).value) == ("quiet", 2.0)
    longer = [*healthy(30), *[lost | {"sequence_length_mean": 1300.0}] * 12]
    found = state("CollapseRisk", longer)
    assert (found.state, found.severity, found.value) == ("active", "critical", 3.0)
    assert state("CollapseRisk", [*longer, *[HEALTHY] * 30]).state == "quiet"


def test_a_run_may_have_thresholds_of_its_own_or_no_rule_at_all() -> None:
    rows = [HEALTHY | {"gaps.mismatch.k3": 1.2e-2}] * 2

    def under(**override: Any) -> RuleState:
        return state("MismatchKL", rows, overrides={"MismatchKL": override})

    assert under(steps=2).state == "active"
    assert under(warning=2e-2).state == "quiet"
    assert under(critical=2e-3, steps=1).severity == "critical"
    assert (under(enabled=False).state, under(warning=None, critical=None).state) == ("disabled", "disabled")
