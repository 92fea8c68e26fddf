"""Roots: of the alerts that one cause raises, the one that speaks for all; the others are its evidence.

One for each half of a run: mismatch, staleness, data. Alerts on the total gap, and on what follows from a gap, go with
the root of a half that is active, and among themselves where none is. Any other rule has a root of its own.

The root is of the worst severity that is active, since people must hear of a fault that grows worse. Of these it is the
one that was the root before, else the one that has been active for longest, else the first in the table of rules: a
root that changed without need would be told as another fault. But a change (Rule.change), the first of its half, that
begins CALM steps or more after the root did is another fault, and takes over.

A root that people were told of goes on while one of its severity that it spoke for does: the fault is not over. When it
ends, a milder one takes its place. That one, one that comes back, and one that begins within CALM steps of the end of
one as bad in its half, of which people were told, are told only where they are still there CALM steps later: alerts of
one fault end one after the other, or come and go. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from offpolicy_monitor.alerts.episodes import CALM, Episode, Key, was_told
from offpolicy_monitor.alerts.rule import SEVERITIES, Rule
from offpolicy_monitor.alerts.rules import RULES
from offpolicy_monitor.alerts.wall_clock import WALL_CLOCK_RULES, WallClockRule

_RULES: Final[Mapping[str, Rule | WallClockRule]] = {rule.name: rule for rule in (*RULES, *WALL_CLOCK_RULES)}
_RANK: Final = {name: rank for rank, name in enumerate(_RULES)}
#: Rules that say which half the total gap is of.
_SAY_WHICH: Final = {"MismatchDominates": "mismatch", "StalenessDominates": "staleness"}


def with_roots(episodes: Iterable[Episode], step: int | None, total_alone: bool = False) -> list[Episode]:
    """Episodes of one run after a judgement at `step`, each with who speaks for it, and from when on it is told.

    `episodes` as episodes.follow answers them. None: a judgement by the wall clock, of the rules on it. `total_alone`:
    rules on the mismatch look at the total gap, so that both are one. What is not active stays as it is. A second time
    changes nothing.
    """
    found = _going_on(list(episodes), step)
    active = [one for one in found if one.state == "active"]
    groups = {one.alert: group_of(one.alert) for one in found}
    if total_alone:
        groups = {alert: "total" if group == "mismatch" else group for alert, group in groups.items()}
    speakers = _speakers(active, groups)
    lately = [(groups[one.alert], _grade(one)) for one in found if _was_told_lately(one)]

    def placed(episode: Episode) -> Episode:
        group = groups[episode.alert]
        is_news = not any(half == group and grade >= _grade(episode) for half, grade in lately)
        return _placed(episode, speakers[group], step, is_news)

    return [placed(one) if one.state == "active" else one for one in found]


def _going_on(episodes: Sequence[Episode], step: int | None) -> list[Episode]:
    """With those active again that have just ended, but go on in others that they speak for."""
    spoken_for = {(one.inhibited_by, one.severity) for one in episodes if one.state == "active"}
    return [
        replace(one, state="active", resolved_step=None)
        if _was_told_lately(one) and one.resolved_step == step and one.inhibited_by is None and one.key in spoken_for
        else one
        for one in episodes
    ]


def _was_told_lately(episode: Episode) -> bool:
    """Whether people were told of it, and it is over but may come back."""
    return episode.state == "resolved" and was_told(episode.told_from) and episode.quiet_since is not None


def group_of(alert: str) -> str:
    """The half that its rule looks at, or the rule itself where it looks at none."""
    return getattr(_RULES.get(alert), "half", None) or alert


def roots_of(episodes: Iterable[Episode]) -> dict[Key, bool]:
    """Those that speak for themselves, and whether people are told of them: one that took a place may wait."""
    own = (episode for episode in episodes if episode.state == "active" and episode.inhibited_by is None)
    return {episode.key: not episode.told_from for episode in own}


def _speakers(active: Sequence[Episode], groups: Mapping[str, str]) -> Mapping[str, Episode]:
    """By group, the one that speaks for it: the worst of its own, or a root that it follows and that is as bad."""
    members: dict[str, list[Episode]] = {}
    for episode in active:
        members.setdefault(groups[episode.alert], []).append(episode)
    heads = {group: _head(of_it) for group, of_it in members.items()}
    halves = {half for rule, half in _SAY_WHICH.items() if rule in heads}

    def speaker(group: str) -> Episode:
        head = heads[group]
        for other in _follows(head.alert, group, halves):
            if (
                other != group
                and other in heads
                and speaker(other) is heads[other]
                and _grade(heads[other]) >= _grade(head)
            ):
                return heads[other]
        return head

    return {group: speaker(group) for group in heads}


def _head(members: Sequence[Episode]) -> Episode:
    """The one that speaks for its half: a change that what spoke so far does not explain, else the first in order."""
    head = min(members, key=_order)
    changes = [episode for episode in members if getattr(_RULES.get(episode.alert), "change", False)]
    if any(_is_placed(episode) for episode in changes):
        return head
    return min(
        (one for one in changes if _grade(one) == _grade(head) and _is_later(one, head)), key=_order, default=head
    )


def _is_placed(episode: Episode) -> bool:
    """Whether a judgement before this one had it."""
    return episode.inhibited_by is not None or episode.told_from is not None


def _is_later(episode: Episode, head: Episode) -> bool:
    if episode.active_step is None or head.active_step is None:
        return False
    return episode.active_step - head.active_step >= CALM


def _follows(alert: str, group: str, halves: set[str]) -> tuple[str, ...]:
    """The groups whose root speaks for it; of the total gap that of the half which it is of, where that is known."""
    rule = _RULES.get(alert)
    of_one_half = group == "total" and bool(halves)
    return () if rule is None else tuple(other for other in rule.follows if not of_one_half or other in halves)


def _placed(episode: Episode, speaker: Episode, step: int | None, is_news: bool) -> Episode:
    """With its speaker, and from when on it is told; most stay as they were."""
    inhibited_by = None if speaker is episode else speaker.alert
    told_from = _told_from(episode, inhibited_by is None, step, is_news)
    if (inhibited_by, told_from) == (episode.inhibited_by, episode.told_from):
        return episode
    return replace(episode, inhibited_by=inhibited_by, told_from=told_from)


def _told_from(episode: Episode, speaks: bool, step: int | None, is_news: bool) -> int | None:
    told = episode.told_from
    if told == 0:  # one that people were told of stays told, and will be told as over
        return 0
    if not speaks:
        return told if was_told(told) else None
    if told is None:
        waits = step is not None and (episode.inhibited_by is not None or not is_news)
        return (step or 0) + CALM if waits else 0
    if step is None or episode.quiet_since is not None:
        return told
    # A restart may have gone back to earlier steps.
    due = min(abs(told), step + CALM)
    return 0 if step >= due else -due if told < 0 else due


def _grade(episode: Episode) -> int:
    return SEVERITIES.index(episode.severity)


def _order(episode: Episode) -> tuple[int, bool, int, int]:
    """The root first."""
    was_root = episode.inhibited_by is None and episode.told_from is not None
    since = -1 if episode.active_step is None else episode.active_step
    return -_grade(episode), not was_root, since, _RANK.get(episode.alert, len(_RANK))
