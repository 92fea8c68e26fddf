"""An episode goes on, is told once, and ends; what a silent rule or a restart does to it is nothing."""

from offpolicy_monitor.alerts import (
    RULES,
    WALL_CLOCK_RULES,
    Episode,
    History,
    RuleState,
    Severity,
    Terms,
    Timing,
    paths_of,
)
from offpolicy_monitor.alerts.engine import State
from offpolicy_monitor.alerts.episodes import Key, follow
from offpolicy_monitor.alerts.judge import judge_steps, judge_timing

RULE = next(rule for rule in RULES if rule.name == "MismatchKL")
KEY: Key = ("MismatchKL", "warning")


def said(state: State, breach_steps: int = 0, since: int | None = None, severity: Severity = "warning") -> RuleState:
    return RuleState(RULE, severity, state, 3e-3, 2e-3, 5, breach_steps, since)


def after(before: Episode | None, state: RuleState, step: int) -> Episode | None:
    return follow({KEY: before} if before else {}, [state], step).get(KEY)


def test_a_breach_is_pending_then_active_then_resolved() -> None:
    pending = after(None, said("pending", 1, 10), 10)
    assert pending == Episode("MismatchKL", "warning", "pending", 10, 10, 1, 3e-3, 2e-3)
    active = after(pending, said("active", 5, 10), 14)
    assert active is not None and (active.state, active.since_step, active.breach_steps) == ("active", 10, 5)
    ended = after(active, said("quiet"), 15)
    assert ended is not None and (ended.state, ended.last_step, ended.breach_steps) == ("resolved", 14, 5)


def test_a_pending_breach_that_ends_leaves_nothing() -> None:
    assert after(after(None, said("pending", 1, 10), 10), said("quiet"), 11) is None


def test_a_silent_rule_leaves_its_episode_as_it_is_and_one_that_is_not_wanted_ends_it() -> None:
    active = after(None, said("active", 5, 10), 14)
    assert after(active, said("silent"), 15) == active
    ended = after(active, said("disabled"), 15)
    assert ended is not None and ended.state == "resolved"


def test_a_breach_older_than_the_history_keeps_its_first_step_and_goes_on_counting() -> None:
    active = after(None, said("active", 300, 100), 399)
    longer = after(active, said("active", 300, 101), 400)
    assert longer is not None and (longer.since_step, longer.breach_steps) == (100, 301)
    again = after(longer, said("active", 300, 101), 400)
    assert again is not None and again.breach_steps == 301


def test_a_breach_that_began_anew_between_two_judgements_has_the_new_first_step() -> None:
    active = after(None, said("active", 5, 10), 14)
    newer = after(active, said("pending", 2, 20), 21)
    assert newer is not None and (newer.since_step, newer.breach_steps, newer.state) == (20, 2, "active")


def test_judging_the_same_steps_again_changes_nothing() -> None:
    history = History.of([(step, {"gaps.mismatch.k3": 3e-3}) for step in range(6)], paths_of(RULES))
    _, once = judge_steps(history, Terms(), [])
    _, twice = judge_steps(history, Terms(), once.values())
    assert once == twice
    assert once[KEY].state == "active"


def test_rules_on_the_wall_clock_scale_with_the_step_time_and_have_a_least() -> None:
    def found(timing: Timing, terms: Terms | None = None) -> set[Key]:
        return set(judge_timing(timing, terms or Terms(), [])[1])

    assert found(Timing(10, 599, None)) == set()
    assert found(Timing(10, 601, None)) == {("RunSilent", "warning"), ("RunSilent", "critical")}
    assert found(Timing(300, 901, 800)) == {("RunSilent", "warning")}
    assert found(Timing(300, 3001, None)) == {("RunSilent", "warning"), ("RunSilent", "critical")}
    assert found(Timing(30, 5, 91)) == {("IncompleteStep", "warning")}
    assert found(Timing(None, 5399, 5399)) == set()
    assert found(Timing(None, 5401, 5401)) == {("RunSilent", "warning"), ("IncompleteStep", "warning")}
    assert (
        found(Timing(10, 601, 61), Terms(overrides={rule.name: {"enabled": False} for rule in WALL_CLOCK_RULES}))
        == set()
    )
