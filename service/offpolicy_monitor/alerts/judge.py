"""Judges one run: its stored figures and the episodes that are not over in, states of all rules and episodes out.

Plain values on both sides, as the store keeps them. The same figures give the same answer, whoever asks and how often.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from offpolicy_monitor.alerts import engine, wall_clock
from offpolicy_monitor.alerts.engine import Judged, RuleState, states_of
from offpolicy_monitor.alerts.episodes import Episode, Key, follow
from offpolicy_monitor.alerts.history import History
from offpolicy_monitor.alerts.rule import Rule, Terms
from offpolicy_monitor.alerts.rules import RULES
from offpolicy_monitor.alerts.wall_clock import WALL_CLOCK_RULES, Timing, WallClockRule


def judge_steps(
    history: History, terms: Terms, open_: Iterable[Episode], rules: Sequence[Rule] = RULES
) -> tuple[list[Judged], dict[Key, Episode]]:
    """At the newest step: every rule, and the episodes as episodes.follow answers them.

    `open_` may hold episodes of rules on the wall clock; they are not looked at and not in the answer.
    """
    judged, before = engine.judge(rules, history, terms), _of(rules, open_)
    step = history.steps[-1] if history.steps else None
    alerts, states = {alert for alert, _ in before}, list[RuleState]()
    for one in judged:
        outlook, _, found = one
        # A rule at rest begins no episode.
        if found is not None or (alerts and outlook.plan.rule.name in alerts):
            states += states_of(one)
    return judged, follow(before, states, step)


def judge_timing(timing: Timing, terms: Terms, open_: Iterable[Episode]) -> tuple[set[str], dict[Key, Episode]]:
    """The names of the rules on the wall clock, and their episodes as episodes.follow answers them."""
    states = wall_clock.evaluate(WALL_CLOCK_RULES, timing, terms)
    names = {rule.name for rule in WALL_CLOCK_RULES}
    return names, follow(_of(WALL_CLOCK_RULES, open_), states, None)


def _of(rules: Iterable[Rule | WallClockRule], open_: Iterable[Episode]) -> dict[Key, Episode]:
    found = {episode.key: episode for episode in open_}
    # Most runs have no alert.
    names = {rule.name for rule in rules} if found else set()
    return {key: episode for key, episode in found.items() if episode.alert in names}


def shown(
    state: RuleState,
    active: Mapping[Key, Episode] = MappingProxyType({}),
    roots: Mapping[Key, bool] = MappingProxyType({}),
) -> dict[str, Any]:
    """A state as it is kept and answered: what does not apply is left out.

    active   the episodes that are: of such a one the rule is active too, though it may be quiet for the moment
    roots    those that speak for themselves, and whether people are told of them (alerts.roots)
    """
    rule, severity, named, value, threshold, required, breached, since, missing, _, _ = state
    if active and named in ("quiet", "pending") and (standing := active.get((rule.name, severity))):
        named, breached, since = "active", standing.breach_steps, standing.since_step
    found: dict[str, Any] = {"alert": rule.name, "severity": severity, "state": named}
    if value is not None:
        found["value"] = value
    if threshold is not None:
        found["threshold"] = threshold
    if named != "disabled" and named != "silent":
        found["required_steps"], found["breach_steps"] = required, breached
    if since is not None:
        found["since_step"] = since
    if roots and named == "active" and (rule.name, severity) in roots:
        found["root"] = roots[rule.name, severity]
    if missing:
        found["missing"] = list(missing)
    return found
