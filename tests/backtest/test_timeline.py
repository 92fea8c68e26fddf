"""A timeline tells what the service would have told, at the step at which it would."""

from collections.abc import Mapping, Sequence

from offpolicy_monitor.alerts import RULES, History, Terms, evaluate, paths_of
from offpolicy_monitor.backtest.figures import Figures
from offpolicy_monitor.backtest.timeline import timeline
from offpolicy_monitor.store.rows.histories import FIRST, NEWEST

K3 = "gaps.mismatch.k3"


def figures(columns: Mapping[str, Sequence[float]], first: int = 0) -> Figures:
    steps = list(range(first, first + len(next(iter(columns.values())))))
    return Figures(steps, {path: dict(zip(steps, values, strict=True)) for path, values in columns.items()}, (), ())


def test_an_alert_is_told_when_it_becomes_active_and_until_when() -> None:
    lag = [1.0] * 5 + [20.0] * 3 + [1.0] * 4
    found = timeline(figures({"policy_lag.max": lag}, first=100), Terms())
    assert [(one.alert, one.severity, one.step, one.until, one.value) for one in found] == [
        ("StaleData", "warning", 105, 108, 20.0),
        ("StaleData", "critical", 105, 108, 20.0),
    ]
    assert found[1].message.startswith("Tokens were sampled many versions ago: largest version lag is 20")


def test_what_is_active_at_the_end_has_no_end() -> None:
    [alert] = timeline(figures({"policy_lag.max": [1.0, 9.0]}), Terms())
    assert (alert.step, alert.until) == (1, None)


def test_own_thresholds_hold() -> None:
    lag = figures({"policy_lag.max": [1.0, 9.0]})
    assert timeline(lag, Terms(overrides={"StaleData": {"enabled": False}})) == []
    assert timeline(lag, Terms(overrides={"StaleData": {"warning": 10}})) == []
    assert [one.severity for one in timeline(lag, Terms(overrides={"StaleData": {"critical": 8}}))] == [
        "warning",
        "critical",
    ]


def test_an_alert_that_is_evidence_of_another_names_it_and_one_that_speaks_names_none() -> None:
    lag, difference = [1.0] * 5 + [9.0] * 2 + [20.0] * 5, [1e-3] * 5 + [0.015] * 7
    found = timeline(figures({"policy_lag.max": lag, "gaps.mismatch.probability_diff_mean": difference}), Terms())
    assert [(one.alert, one.severity, one.step, one.inhibited_by) for one in found] == [
        ("StaleData", "warning", 5, "StaleData"),
        ("StaleData", "critical", 7, None),
        ("ProbabilityDiff", "warning", 9, None),
    ]


def test_progress_is_told_for_every_step() -> None:
    done: list[int] = []
    timeline(figures({K3: [1e-4] * 7}), Terms(), done.append)
    assert done == [1, 2, 3, 4, 5, 6, 7]


def test_a_long_history_is_judged_by_what_the_service_looks_back_on() -> None:
    lengths = [800.0] * 30 + [800 * 1.002**step for step in range(FIRST + NEWEST + 50)]
    found = timeline(figures({"sequence_length_mean": lengths}), Terms(overrides={"LengthSurge": {"warning": 1.15}}))
    kept = [*enumerate(lengths)][:FIRST] + [*enumerate(lengths)][-NEWEST:]
    history = History.of([(step, {"sequence_length_mean": value}) for step, value in kept], paths_of(RULES))
    terms = Terms(overrides={"LengthSurge": {"warning": 1.15}})
    now = {state.rule.name for state in evaluate(RULES, history, terms) if state.state == "active"}
    assert {one.alert for one in found if one.until is None} == now == {"LengthSurge"}
