"""Scenarios are named by their own alerts in time, and healthy runs by none; quick noise is that of the model."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from offpolicy_monitor.alerts import RULES, History, Terms, evaluate, paths_of
from offpolicy_monitor.backtest.figures import Figures
from offpolicy_monitor.backtest.timeline import timeline

from tests.detection.false_alarms import add, count_run
from tests.detection.healthy import healthy_run
from tests.detection.judged import Row, judged, row_of, summary_of, terms_of
from tests.detection.played import Outcome, play
from tests.detection.pool import EVEN, TOKENS, pool
from tests.detection.scenarios import ONSET, SCENARIOS, Scenario
from tests.detection.state import Run, State
from tests.detection.steps import make_step
from tests.detection.tokens import ELSEWHERE, scale_of
from tests.diagnosis.model import noisy, normalised

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
#: Steps of a strong fault after which rules are active.
SOON = 15


@cache
def played(name: str) -> Outcome:
    """A scenario at medium strength; nobody changes what it gives out."""
    return play(BY_NAME[name], "medium", 1)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_scenario_of_medium_strength_is_named_by_its_own_alert_in_time_and_of_weights_if_it_is(
    scenario: Scenario,
) -> None:
    outcome = played(scenario.name)
    assert outcome.in_time, (outcome.named, scenario.crossed(outcome.size) + scenario.within)
    assert outcome.diagnosis == (scenario.diagnosis or outcome.diagnosis)
    early = [verdict.rule for verdict in outcome.verdicts if verdict.active[:ONSET].any()]
    assert not early
    of_weights = any(verdict.rule == "SyncBroken" and verdict.active.any() for verdict in outcome.verdicts)
    assert of_weights == ("SyncBroken" in scenario.alerts)


def test_dropped_stale_data_shows_in_fewer_and_shorter_sequences_and_in_a_lag_that_ends_at_the_limit() -> None:
    rows = played("dropped-stale-data").rows
    before, after = rows[ONSET - 10 : ONSET], rows[ONSET:]
    assert {row["policy_lag.max"] for row in before} == {6.0} and {row["policy_lag.max"] for row in after} == {2.0}
    assert max(row["sequences"] for row in after) < 0.7 * min(row["sequences"] for row in before)
    usual, shorter = (np.mean([row["sequence_length_mean"] for row in part]) for part in (before, after))
    assert shorter < 0.7 * usual


def test_a_decode_that_leaves_its_prefill_is_all_of_the_mismatch_and_the_rest_is_as_it_was() -> None:
    run, states = Run(rescored=True, sequences=64), (State(scale=0.03, decode=0.01), State(scale=0.03, decode=0.35))
    calm, planted = (
        summary_of(make_step(run, state, 3, np.random.default_rng(1))).step_figures()["noise_floor"] for state in states
    )
    assert calm["attribution"]["engine_internal"] < 0.2
    assert planted["attribution"]["engine_internal"] == pytest.approx(1, abs=0.05)
    assert planted["cross_engine"]["k3"] == pytest.approx(calm["cross_engine"]["k3"], rel=0.3)
    assert planted["engine_internal"]["k3"] > 0.01


def test_a_sampler_frozen_for_2000_steps_is_told_of_once_and_until_its_end() -> None:
    """In closed form: in 0.4 of the contexts the policy has moved to what is never drawn, in the others it has not."""
    mean = [1.0] * ONSET + [1 - 0.34 * (step + 1) / 2000 for step in range(2000)]
    moved = [(1 - ratio) / ELSEWHERE for ratio in mean]
    columns = {
        "ratio_mean": mean,
        "chi2": [4e-4 + ELSEWHERE * (1 - m) ** 2 + 1 - ELSEWHERE - 1 for m in moved],
        "k3": [2e-4 + ELSEWHERE * (-m - math.log1p(-m)) for m in moved],
        "tokens": [2000.0] * len(mean),
    }
    steps = list(range(len(mean)))
    figures = {f"gaps.mismatch.{name}": dict(zip(steps, column, strict=True)) for name, column in columns.items()}
    rules = [rule for rule in RULES if rule.name in ("RatioNotCalibrated", "MismatchDrift")]
    told = timeline(Figures(steps, figures, (), ()), Terms(), rules=rules)
    [calibration] = [one for one in told if (one.alert, one.severity) == ("RatioNotCalibrated", "warning")]
    assert (calibration.step - ONSET, calibration.until) == (31, None)
    [critical] = [one for one in told if (one.alert, one.severity) == ("RatioNotCalibrated", "critical")]
    assert (critical.step - ONSET, critical.until) == (119, None)
    [drift] = [one for one in told if (one.alert, one.severity) == ("MismatchDrift", "warning")]
    assert drift.until is None


def test_healthy_steps_alarm_nobody() -> None:
    counted = add(count_run(seed, 60) for seed in range(6))
    assert counted.steps == 360
    assert (counted.of("critical"), counted.of("warning")) == (0, 0), counted.episodes


@pytest.mark.parametrize("name", [rule.name for rule in RULES])
def test_every_rule_has_a_scenario_or_is_active_in_one(name: str) -> None:
    assert name in TOLD or any(name in scenario.alerts for scenario in SCENARIOS)


#: Rules without a scenario of their own, and one in which each is active at strong strength.
TOLD = {
    "MismatchKL": "temperature",
    "ProbabilityDiff": "temperature",
    "ExtremeSequences": "off-by-one",
    "RatioTail": "off-by-one",
    "LowEffectiveSampleSize": "off-by-one",
    "ChiSquare": "off-by-one",
    "TotalOffPolicy": "staleness",
    "PerplexityGap": "sync-broken",
    "Correlation": "off-by-one",
    "MultiplicativeError": "off-by-one",
    "BadUpdates": "off-by-one",
    "MaskRate": "length-bias",
    "StalenessDominates": "staleness",
    "MismatchDominates": "off-by-one",
}


@pytest.mark.parametrize("name", sorted(set(TOLD.values())))
def test_rules_without_a_scenario_of_their_own_are_active_in_a_strong_one(name: str) -> None:
    outcome = play(replace(BY_NAME[name], lasts=SOON), "strong", 1)
    active = {verdict.rule for verdict in outcome.verdicts if verdict.active[ONSET:].any()}
    assert {rule for rule, scenario in TOLD.items() if scenario == name} <= active


def test_one_pass_over_a_run_says_what_evaluating_each_step_would() -> None:
    outcome = played("spike")
    terms = terms_of("dense_bf16", None)
    for length in (ONSET + 1, ONSET + 9, ONSET + 20):
        history = History.of(list(enumerate(outcome.rows[:length])), paths_of(RULES))
        now = {(s.rule.name, s.severity) for s in evaluate(RULES, history, terms) if s.state == "active"}
        assert now == {(v.rule, v.severity) for v in outcome.verdicts if v.active[length - 1]}


def test_noise_of_second_order_has_the_figures_of_noise_in_logits() -> None:
    source, tokens = np.random.default_rng(0), np.arange(TOKENS)
    scale = np.full(TOKENS, 0.15)
    quick = pool().noise(tokens, scale, EVEN, source)
    exact = normalised(noisy(pool().logits, scale, 0.0, source)) - normalised(pool().logits)
    weight = np.exp(normalised(pool().logits))
    k3 = float((weight * (np.expm1(exact) - exact)).sum(1).mean())
    assert float((np.expm1(quick) - quick).mean()) == pytest.approx(k3, rel=0.1)
    assert float(np.exp(quick).mean()) == pytest.approx(1, abs=3e-3)
    assert float(np.abs(quick).mean()) == pytest.approx(float((weight * np.abs(exact)).sum(1).mean()), rel=0.1)


@pytest.mark.parametrize("k3", [1e-4, 1e-3])
def test_a_run_has_the_k3_that_it_is_made_for(k3: float) -> None:
    run = Run(sequences=200, uneven=6.0)
    step = make_step(run, State(scale=scale_of(k3, run)), 3, np.random.default_rng(1))
    assert row_of(summary_of(step), 3)["gaps.mismatch.k3"] == pytest.approx(k3, rel=0.25)


def test_the_bitwise_profile_has_no_mismatch_and_says_nothing() -> None:
    seed = next(seed for seed in range(100) if healthy_run(seed).run.profile == "bitwise")
    rows: list[Row] = [row_of(summary_of(parts), 0) for parts in healthy_run(seed).steps(seed, 5)]
    assert [row["gaps.mismatch.k3"] for row in rows] == [0.0] * 5
    assert not any(verdict.active.any() for verdict in judged(rows, terms_of("bitwise", None)))
