"""Every rule fires at its step count and not one step earlier, stops with the breach, and is quiet when healthy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.alerts import PROFILES, RULES, History, Rule, RuleState, evaluate
from offpolicy_monitor.store.fields import is_known

BY_NAME = {rule.name: rule for rule in RULES}

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
    "gaps.mismatch.probability_correlation": 0.9995,
    "gaps.mismatch.multiplicative_error": 1.005,
    "policy_lag.max": 1.0,
    "entropy_mean": 0.9,
    "sequence_length_mean": 800.0,
    "routing.mismatch.agreement": 0.9,
}

#: Rule -> the figures of a step that breaches its warning and no critical threshold.
BREACHES: dict[str, dict[str, float]] = {
    "MismatchKL": {"gaps.mismatch.k3": 3e-3},
    "ProbabilityDiff": {"gaps.mismatch.probability_diff_mean": 0.007},
    "RatioTail": {"gaps.mismatch.tail_fraction": 0.05},
    "RatioNotCalibrated": {"gaps.mismatch.ratio_mean": 0.97},
    "LowEffectiveSampleSize": {"gaps.mismatch.ess": 0.4},
    "ChiSquare": {"gaps.mismatch.chi2": 0.5},
    "TotalOffPolicy": {"gaps.total.log_ratio_mean": -0.05},
    "PerplexityGap": {"gaps.mismatch.sequence.log_geometric_ratio_abs_mean": 0.02},
    "Correlation": {"gaps.mismatch.probability_correlation": 0.97},
    "MultiplicativeError": {"gaps.mismatch.multiplicative_error": 1.07},
    "StaleData": {"policy_lag.max": 9.0},
    "RoutingAgreement": {"routing.mismatch.agreement": 0.86},
}


def history(rows: Sequence[dict[str, float]]) -> History:
    paths = {path for rule in RULES for path in rule.inputs}
    return History.of([(10 + place, row) for place, row in enumerate(rows)], paths)


def state(name: str, rows: Sequence[dict[str, float]], profile: str = "dense_bf16") -> RuleState:
    [found] = evaluate([BY_NAME[name]], history(rows), profile)
    return found


def healthy(steps: int, seed: int = 0) -> list[dict[str, float]]:
    source = np.random.default_rng(seed)
    return [
        {path: value * (1 + 1e-3 * source.standard_normal() * (value != 1.0)) for path, value in HEALTHY.items()}
        for _ in range(steps)
    ]


@pytest.mark.parametrize("name", BREACHES)
def test_a_rule_fires_at_its_step_count_not_one_step_earlier_and_stops_with_the_breach(name: str) -> None:
    needed = BY_NAME[name].steps["warning"]
    before, breach = healthy(40), HEALTHY | BREACHES[name]
    early = state(name, before + [breach] * (needed - 1))
    assert early.state == ("pending" if needed > 1 else "quiet")
    fired = state(name, before + [breach] * needed)
    assert (fired.state, fired.severity, fired.breach_steps, fired.since_step) == ("active", "warning", needed, 50)
    assert fired.threshold is not None and fired.value is not None
    assert (fired.value > fired.threshold) == fired.rule.above
    assert state(name, before + [breach] * needed + [HEALTHY]).state == "quiet"


@pytest.mark.parametrize("name", BY_NAME)
def test_no_rule_says_anything_of_healthy_steps(name: str) -> None:
    rows = healthy(300, seed=3)
    assert all(state(name, rows[:count]).state == "quiet" for count in (1, 4, 6, 26, 60, 300))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_without_its_inputs_is_silent_and_says_what_is_missing(rule: Rule) -> None:
    rows = healthy(30)
    for path in rule.inputs:
        without = [*rows[:-1], {name: value for name, value in rows[-1].items() if name != path}]
        assert (state(rule.name, without).state, state(rule.name, without).missing) == ("silent", (path,))
    assert evaluate([rule], history([]), "fp8")[0].state == "silent"


def test_critical_needs_fewer_steps_and_wins_over_warning() -> None:
    rows = healthy(40) + [HEALTHY | {"gaps.mismatch.k3": 0.02}] * 3
    found = state("MismatchKL", rows)
    assert (found.state, found.severity, found.threshold, found.breach_steps) == ("active", "critical", 1e-2, 3)
    assert state("MismatchKL", rows, "fp4").state == "quiet"


def test_an_active_warning_is_told_while_a_critical_breach_is_young() -> None:
    rows = healthy(40) + [HEALTHY | {"gaps.mismatch.k3": 3e-3}] * 6 + [HEALTHY | {"gaps.mismatch.k3": 0.02}]
    found = state("MismatchKL", rows)
    assert (found.state, found.severity, found.breach_steps) == ("active", "warning", 7)


def test_under_the_bitwise_profile_any_mismatch_is_one() -> None:
    assert state("MismatchKL", [HEALTHY | {"gaps.mismatch.k3": 1e-12}] * 3, "bitwise").severity == "critical"
    assert state("MismatchKL", [HEALTHY | {"gaps.mismatch.k3": 0.0}] * 9, "bitwise").state == "quiet"


def test_slow_drift_fires_against_the_runs_own_beginning_and_never_before_its_baseline() -> None:
    growing = [HEALTHY | {"gaps.mismatch.k3": 1e-4 * 1.05**step} for step in range(120)]
    states = [state("MismatchDrift", growing[:count]) for count in range(1, 121)]
    first = next(place for place, found in enumerate(states) if found.state == "active")
    assert all(found.state == "quiet" for found in states[:26])
    assert states[first].severity == "warning" and states[-1].severity == "critical"
    value = states[first].value
    assert value is not None and 3 < value < 8


def test_single_spikes_warn_and_three_in_ten_steps_are_critical() -> None:
    spike = HEALTHY | {"gaps.mismatch.k3": 5e-3}
    once = [*healthy(60), spike]
    assert state("MismatchSpike", once).severity == "warning"
    assert state("MismatchSpike", [*once, *healthy(10)]).state == "quiet"
    assert state("MismatchSpike", [*once, HEALTHY, spike, HEALTHY, spike]).severity == "critical"
    assert state("MismatchSpike", [*healthy(60), HEALTHY | {"gaps.mismatch.k3": 9e-4}]).state == "quiet"


def test_a_ratio_off_one_by_chance_is_no_miscalibration() -> None:
    few = HEALTHY | {"gaps.mismatch.ratio_mean": 0.9, "gaps.mismatch.chi2": 1.0, "gaps.mismatch.tokens": 400.0}
    assert state("RatioNotCalibrated", [few] * 5).state == "quiet"


def test_entropy_that_halves_within_fifty_steps_warns_and_below_a_fifth_of_a_nat_is_critical() -> None:
    falling = healthy(60) + [HEALTHY | {"entropy_mean": 0.4}] * 10
    assert state("EntropyCollapse", falling).severity == "warning"
    assert state("EntropyCollapse", healthy(20) + [HEALTHY | {"entropy_mean": 0.1}] * 10).severity == "critical"


def test_answers_that_double_in_length_are_a_surge() -> None:
    rows = healthy(200) + [HEALTHY | {"sequence_length_mean": 1600.0}] * 40
    assert state("LengthSurge", rows).state == "active"


def test_steps_without_the_figure_neither_count_nor_break_a_breach() -> None:
    breach = HEALTHY | BREACHES["MismatchKL"]
    hole = {path: value for path, value in HEALTHY.items() if path != "gaps.mismatch.k3"}
    found = state("MismatchKL", [*healthy(20), breach, breach, hole, breach, breach, breach])
    assert (found.state, found.breach_steps) == ("active", 5)


def test_figures_are_found_nested_as_in_answers_or_by_path() -> None:
    rows: list[tuple[int, dict[str, Any]]] = [(3, {"gaps": {"mismatch": {"k3": 0.5}}}), (4, {"gaps.mismatch.k3": 0.25})]
    assert History.of(rows, ["gaps.mismatch.k3"]).column("gaps.mismatch.k3").tolist() == [0.5, 0.25]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_has_figures_that_exist_and_thresholds_that_grow_worse(rule: Rule) -> None:
    assert all(is_known(path) for path in rule.inputs)
    assert rule.source and rule.summary and rule.expression
    for profile in PROFILES:
        warning, critical = rule.threshold("warning", profile), rule.threshold("critical", profile)
        if warning is not None and critical is not None:
            assert critical >= warning if rule.above else critical <= warning
