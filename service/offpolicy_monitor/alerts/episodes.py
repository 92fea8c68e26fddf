"""Episodes: a breach from its first step to its end, and how one judgement of a run continues the one before.

An episode is pending, then active, then resolved. One that ends while it is pending was nothing and is dropped. A
resolved one may come back within CALM steps, and is active again then, the same one: a fault that comes and goes is one
fault. From then on it is over once its rule has been quiet for CALM steps. On the wall clock nothing comes back. A
silent rule leaves its episodes as they are: no news is not good news.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from offpolicy_monitor.alerts.engine import RuleState
from offpolicy_monitor.alerts.rule import Severity
from offpolicy_monitor.alerts.wall_clock import WallClockState

Key = tuple[str, Severity]

#: Steps within which the alerts of one fault come and go.
CALM: Final = 10


@dataclass(frozen=True)
class Episode:
    """One breach of one severity of a rule. Steps are None where the rule is on the wall clock.

    peak           the worst value while it was open, in the rule's direction
    active_step    the step whose judgement made it active
    resolved_step  the one whose judgement ended it; of one that is active again, the first time
    quiet_since    the first step since its last breach, of one that goes on without one or may come back; else None
    message        what it says to people, of the last step that breached
    inhibited_by   the alert that speaks for it (alerts.roots); None: it speaks for itself
    told_from      0 where people are told of it, or were; else the step from which on they are, None while they are
                   not; negative, minus that step, of one that has come back and that they were told of before
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
    quiet_since: int | None = None

    @property
    def key(self) -> Key:
        """What tells it from the run's other episodes that are not over."""
        return self.alert, self.severity


def follow(
    before: Mapping[Key, Episode], states: Iterable[RuleState | WallClockState], step: int | None
) -> dict[Key, Episode]:
    """The episodes after a judgement at `step`: those that go on, begin, or have been resolved and may come back.

    `before` are those that were not over, or may come back; what is in `before` and not in the answer is dropped. One
    that is resolved and may come back no longer is in the answer for the last time.
    """
    after = dict(before)
    for state in states:
        breaches = state.state in ("pending", "active")
        # Most are quiet, and were.
        if not breaches and not before:
            continue
        key = state.rule.name, state.severity
        known = before.get(key)
        if known is not None and known.state == "resolved":
            after[key] = _after_its_end(known, state, step)
        elif breaches:
            after[key] = _continued(known, state, step)
        elif state.state != "silent" and known is not None:
            del after[key]
            if known.state == "active":
                after[key] = _quiet(known, state, step)
    return after


def _quiet(episode: Episode, state: RuleState | WallClockState, step: int | None) -> Episode:
    """An active episode whose rule does not breach: over, but where it has come back before and may do so again."""
    if step is None or _is_judged_otherwise(episode, state, step):
        return replace(episode, state="resolved", value=state.value, resolved_step=step, quiet_since=None)
    since = step if episode.quiet_since is None else episode.quiet_since
    quiet = replace(episode, value=state.value, quiet_since=since)
    came_back = episode.resolved_step is not None
    return quiet if came_back and step - since < CALM else replace(quiet, state="resolved", resolved_step=step)


def _after_its_end(episode: Episode, state: RuleState | WallClockState, step: int | None) -> Episode:
    """An episode that was resolved: active again, or as it was, for as long as it may come back."""
    end = episode.resolved_step
    if step is None or end is None or step - end >= CALM or _is_judged_otherwise(episode, state, step):
        return replace(episode, quiet_since=None)
    if state.state != "active":
        return episode
    # People know of its end, and are told of its return only where that lasts.
    waits = -(step + CALM) if episode.told_from == 0 else episode.told_from
    return _continued(replace(episode, state="active", told_from=waits), state, step)


def _is_judged_otherwise(episode: Episode, state: RuleState | WallClockState, step: int) -> bool:
    """Whether settings have changed since its last breach, or a restart has gone back to earlier steps."""
    anew = episode.last_step is not None and step <= episode.last_step
    return anew or state.state == "disabled" or state.threshold != episode.threshold


def was_told(told_from: int | None) -> bool:
    """Whether people are told of it, or were."""
    return told_from is not None and told_from <= 0


def may_go_on(episode: Episode) -> bool:
    """Whether it is not over, or may come back."""
    return episode.state != "resolved" or episode.quiet_since is not None


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
    ended = None if before is None else before.resolved_step
    return Episode(*kept, _peak(before, state), active, ended, state.message, *root)


def _peak(before: Episode | None, state: RuleState | WallClockState) -> float | None:
    """The worst so far: the history may no longer reach back to what was seen before."""
    now = state.value if isinstance(state, WallClockState) or state.peak is None else state.peak
    seen = [value for value in (now, None if before is None else before.peak) if value is not None]
    if not seen:
        return None
    return max(seen) if isinstance(state, WallClockState) else state.rule.worst(seen)


def _goes_on(before: Episode, since: int) -> bool:
    """Whether a breach that the history shows from `since` on is the end of one that began before, or its return."""
    if before.since_step is None or before.last_step is None or before.since_step >= since:
        return False
    return since <= before.last_step or before.quiet_since is not None
