"""A timeline: a history judged step by step, by the engine that the service judges by, over what it would look back on.

Every step is one that is over. Nothing here knows files, or how a timeline is shown.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from offpolicy_monitor.alerts import RULES, Episode, History, Rule, Terms
from offpolicy_monitor.alerts.engine import has_total_alone
from offpolicy_monitor.alerts.episodes import Key, may_go_on
from offpolicy_monitor.alerts.judge import judge_steps
from offpolicy_monitor.alerts.roots import with_roots
from offpolicy_monitor.backtest.figures import Figures
from offpolicy_monitor.store.rows.histories import RunHistory


@dataclass
class Alert:
    """An alert that became active: at which `step`, `until` which (None: it is active at the last step), and what it
    said then. `inhibited_by` is the alert that it is evidence of at its end; None for one that speaks for itself.
    """

    alert: str
    severity: str
    step: int
    until: int | None
    value: float | None
    message: str
    inhibited_by: str | None

    def answer(self) -> dict[str, Any]:
        """As JSON has it."""
        return dict(vars(self))


def timeline(
    figures: Figures, terms: Terms, reached: Callable[[int], None] = lambda steps: None, rules: Sequence[Rule] = RULES
) -> list[Alert]:
    """Every alert in the order of the steps; `reached` is told how many of them are done."""
    history = RunHistory([], {})
    open_: dict[Key, Episode] = {}
    told: dict[Key, Alert] = {}
    found: list[Alert] = []
    for done, step in enumerate(figures.steps, 1):
        history.put((step, 0, done), figures.at(step))
        seen = History(history.steps, history.columns, history.noted)
        _, after = judge_steps(seen, terms, open_.values(), rules)
        episodes = with_roots(after.values(), step, has_total_alone(seen))
        for episode in episodes:
            key = episode.key
            if episode.state == "active":
                if key not in told:
                    told[key] = Alert(*key, step, None, episode.value, episode.message or "", None)
                    found.append(told[key])
                told[key].inhibited_by, told[key].until = episode.inhibited_by, None
            elif episode.state == "resolved":
                told[key].until = episode.resolved_step
                if not may_go_on(episode):
                    del told[key]
        open_ = {episode.key: episode for episode in episodes if may_go_on(episode)}
        reached(done)
    return found
