"""An episode goes on, is told once, and ends; what a silent rule or a restart does to it is nothing."""

from dataclasses import replace

from offpolicy_monitor.alerts import (
    RULES,
    WALL_CLOCK_RULES,
    Episode,
    History,
    RuleState,
    Severity,
    Terms,
    Timing,
    evaluate,
    paths_of,
)
from offpolicy_monitor.alerts.engine import State
from offpolicy_monitor.alerts.episodes import CALM, Key, follow, may_go_on
from offpolicy_monitor.alerts.judge import judge_steps, judge_timing

RULE = next(rule for rule in RULES if rule.name == "MismatchKL")
KEY: Key = ("MismatchKL", "warning")


def said(state: State, breach_steps: int = 0, since: int | None = None, severity: Severity = "warning") -> RuleState:
    return RuleState(RULE, severity, state, 3e-3, 2e-3, 5, breach_steps, since)


def after(before: Episode | None, state: RuleState, step: int) -> Episode | None:
    return follow({KEY: before} if before else {}, [state], step).get(KEY)


def test_a_breach_is_pending_then_active_then_resolved() -> None:
    pending = after(None, said("pending", 1, 10), 10)
    assert pending == Episode("MismatchKL", "warning", "pending", 10, 10, 1, 3e-3, 2e-3, 3e-3)
    active = after(pending, said("active", 5, 10), 14)
    assert active is not None and (active.state, active.since_step, active.breach_steps) == ("active", 10, 5)
    ended = after(active, said("quiet"), 15)
    assert ended is not None and (ended.state, ended.last_step, ended.breach_steps) == ("resolved", 14, 5)


def test_an_episode_keeps_its_worst_value_and_the_steps_at_which_it_became_active_and_ended() -> None:
    values: tuple[tuple[State, float], ...] = (("pending", 3e-3), ("active", 9e-3), ("active", 4e-3))
    seen, found = None, []
    for step, (state, value) in enumerate(values, 10):
        seen = after(seen, said(state, step - 9, 10)._replace(value=value, peak=value), step)
        assert seen is not None
        found.append((seen.peak, seen.active_step, seen.resolved_step))
    assert found == [(3e-3, None, None), (9e-3, 11, None), (9e-3, 11, None)]
    ended = after(seen, said("quiet")._replace(value=1e-3), 15)
    assert ended is not None
    assert (ended.value, ended.peak, ended.active_step, ended.resolved_step) == (1e-3, 9e-3, 11, 15)


def active_at(step: int) -> Episode:
    """Since step 10, and people were told of it."""
    found = after(after(None, said("pending", 1, 10), 10), said("active", step - 9, 10), step)
    assert found is not None
    return replace(found, told_from=0)


def over_at(step: int) -> Episode:
    """The same, until this step."""
    found = after(active_at(step - 1), said("quiet"), step)
    assert found is not None and (found.state, found.resolved_step) == ("resolved", step)
    return found


def test_what_comes_back_within_ten_steps_is_the_same_breach_since_its_first_step() -> None:
    ended = over_at(15)
    assert after(ended, said("pending", 1, 18), 18) == ended
    back = after(ended, said("active", 3, 18), 20)
    assert back is not None and (back.state, back.since_step, back.active_step) == ("active", 10, 14)
    assert (back.last_step, back.breach_steps, back.told_from) == (20, 6, -20 - CALM)


def test_what_has_come_back_is_over_after_ten_quiet_steps_and_not_before() -> None:
    back = after(over_at(15), said("active", 3, 18), 20)
    quiet = after(back, said("quiet"), 21)
    assert quiet is not None and (quiet.state, quiet.quiet_since) == ("active", 21)
    again = after(quiet, said("pending", 1, 30), 30)
    assert again is not None and (again.state, again.quiet_since, again.since_step) == ("active", None, 10)
    quiet = after(again, said("quiet"), 31)
    still = after(quiet, said("quiet"), 30 + CALM)
    assert still is not None and (still.state, still.quiet_since) == ("active", 31)
    ended = after(still, said("quiet"), 31 + CALM)
    assert ended is not None and (ended.state, ended.resolved_step) == ("resolved", 31 + CALM)


def test_what_comes_later_than_ten_steps_is_another_breach() -> None:
    last = after(over_at(15), said("quiet"), 15 + CALM)
    assert last is not None and not may_go_on(last)
    assert may_go_on(over_at(15))


def test_nothing_comes_back_after_a_change_of_settings_or_on_steps_that_were_taken_back() -> None:
    for seen, state, step in (
        (active_at(14), said("quiet"), 14),  # the same step, judged by other settings
        (active_at(14), said("quiet"), 12),  # a restart from a checkpoint
        (active_at(14), said("disabled"), 15),
        (over_at(15), said("active", 1, 3), 3),
        (over_at(15), said("active", 5, 12)._replace(threshold=1.0), 16),
    ):
        ended = after(seen, state, step)
        assert ended is not None and ended.state == "resolved" and not may_go_on(ended)


def test_the_worst_value_of_a_rule_that_breaches_below_is_the_least_and_that_of_all_steps_of_the_breach() -> None:
    rule = next(rule for rule in RULES if not rule.above and len(rule.inputs) == 1)
    [path], severity = rule.inputs, rule.severities[0]
    limit = Terms().limits(rule)[severity].threshold
    rows = [(step, {path: limit - 0.01 * depth}) for step, depth in enumerate((-5, 1, 9, 2, 3, 4, 5))]
    states = {state.severity: state for state in evaluate([rule], History.of(rows, [path]), Terms())}
    expected = min(rule.compared(History.of(rows, [path]), Terms(), index) for index in range(len(rows)))
    assert states[severity].peak == expected < states[severity].value  # pyrefly: ignore[unsupported-operation]


def test_a_breach_that_an_older_release_made_active_does_not_say_at_which_step() -> None:
    older = Episode("MismatchKL", "warning", "active", 10, 14, 5, 3e-3, 2e-3)
    newer = after(older, said("active", 6, 10)._replace(peak=5e-3), 15)
    assert newer is not None and (newer.peak, newer.active_step) == (5e-3, None)


def test_silence_has_its_longest_time_as_its_worst_and_no_steps() -> None:
    names, first = judge_timing(Timing(1.0, 700.0, None), Terms(), [])
    _, second = judge_timing(Timing(1.0, 900.0, None), Terms(), first.values())
    _, over = judge_timing(Timing(1.0, 1.0, None), Terms(), second.values())
    assert "RunSilent" in names
    ended = over["RunSilent", "warning"]
    assert (ended.state, ended.peak, ended.active_step, ended.resolved_step) == ("resolved", 900.0, None, None)


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
    history = History.of([(step, {"gaps.mismatch.k3": 1.2e-2}) for step in range(6)], paths_of(RULES))
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
