"""Episodes: a breach from its first step to its end, and how one judgement of a run continues the one before.

An episode is pending, then active, then resolved. One that ends while it is pending was nothing and is dropped. A
silent rule leaves its episodes as they are: no news is not good news.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from offpolicy_monitor.alerts.engine import RuleState
from offpolicy_monitor.alerts.rule import Severity
from offpolicy_monitor.alerts.wall_clock import WallClockState

Key = tuple[str, Severity]


@dataclass(frozen=True)
class Episode:
    """One breach of one severity of a rule. Steps are None where the rule is on the wall clock.

    peak           the worst value while it was open, in the rule's direction
    active_step    the step whose judgement made it active
    resolved_step  the one whose judgement ended it
    message        what it says to people, of the last step that breached
    inhibited_by   the alert that speaks for it (alerts.roots); None: it speaks for itself
    told_from      0 where people are told of it, or were; else the step from which on they are, None while they are not
    """

    alert: str
    severity: Severity
    state: Literal["pending", "active", "resolved"]
    since_step: int | None
    last_step: int | None
    breach_steps: int
    value: float | None
    threshold: float | None
    peak: float | None = None
    active_step: int | None = None
    resolved_step: int | None = None
    message: str | None = None
    inhibited_by: str | None = None
    told_from: int | None = None

    @property
    def key(self) -> Key:
        """What tells it from the run's other episodes that are not over."""
        return self.alert, self.severity


def follow(
    before: Mapping[Key, Episode], states: Iterable[RuleState | WallClockState], step: int | None
) -> dict[Key, Episode]:
    """The episodes after a judgement at `step`: those that go on, begin, or have just been resolved.

    `before` are those that were not over; what is in `before` and not in the answer is dropped.
    """
    after = dict(before)
    for state in states:
        breaches = state.state in ("pending", "active")
        # Most are quiet, and were.
        if not breaches and not before:
            continue
        key = state.rule.name, state.severity
        if breaches:
            after[key] = _continued(before.get(key), state, step)
        elif state.state != "silent" and key in before:
            ended = after.pop(key)
            if ended.state == "active":
                after[key] = replace(ended, state="resolved", value=state.value, resolved_step=step)
    return after


def _continued(before: Episode | None, state: RuleState | WallClockState, step: int | None) -> Episode:
    """An episode that goes on began when it began, though the history no longer reaches back so far."""
    since = state.since_step if isinstance(state, RuleState) else None
    count = state.breach_steps if isinstance(state, RuleState) else 1
    if before is not None and since is not None and _goes_on(before, since):
        since, count = before.since_step, max(count, before.breach_steps + (step != before.last_step))
    # A breach that has been told is not taken back to pending because more steps are asked for since.
    told = before is not None and before.state == "active"
    shown: Literal["pending", "active"] = "active" if told or state.state == "active" else "pending"
    last = step if since is not None else None
    active = None if shown == "pending" or last is None else step
    if before is not None and told:
        active = before.active_step
    kept = state.rule.name, state.severity, shown, since, last, count, state.value, state.threshold
    root = (None, None) if before is None else (before.inhibited_by, before.told_from)
    return Episode(*kept, _peak(before, state), active, None, state.message, *root)


def _peak(before: Episode | None, state: RuleState | WallClockState) -> float | None:
    """The worst so far: the history may no longer reach back to what was seen before."""
    now = state.value if isinstance(state, WallClockState) or state.peak is None else state.peak
    seen = [value for value in (now, None if before is None else before.peak) if value is not None]
    if not seen:
        return None
    return max(seen) if isinstance(state, WallClockState) else state.rule.worst(seen)


def _goes_on(before: Episode, since: int) -> bool:
    """Whether a breach that the history shows from `since` on is the end of one that began before."""
    return (
        before.since_step is not None and before.last_step is not None and before.since_step < since <= before.last_step
    )
