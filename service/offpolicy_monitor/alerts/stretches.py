"""Breaches of a rule that follow each other closely, as one: what a lane of a plot or a list for people shows."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from offpolicy_monitor.alerts.rule import Rule
from offpolicy_monitor.alerts.rules import RULES

Row = Mapping[str, Any]
_RULES: Final[Mapping[str, Rule]] = {rule.name: rule for rule in RULES}


def joined(rows: Sequence[Row], apart: int) -> list[dict[str, Any]]:
    """Alerts, the newest first, where a breach that began at most `apart` steps after the end of another one is one
    with it: it has the later one's state and times of its end, the earlier one's beginning, the worst `peak` of both,
    and `joined` breaches.

    A breach on the wall clock has no steps and stays as it is.
    """
    found: list[dict[str, Any]] = []
    open_: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        key = row["run"], row["alert"], row["severity"]
        later = open_.get(key)
        if later is not None and _close(row, later, apart):
            later |= {name: row[name] for name in ("since_step", "started_at", "active_at", "active_step")}
            later["peak"] = _worst(row["alert"], (row["peak"], later["peak"]))
            later |= {"joined": later["joined"] + 1, "breach_steps": later["breach_steps"] + row["breach_steps"]}
        else:
            open_[key] = {**row, "joined": 1}
            found.append(open_[key])
    return found


def _worst(alert: str, peaks: Iterable[float | None]) -> float | None:
    """In the direction of the rule; those on the wall clock, and unknown ones, breach above."""
    known = [peak for peak in peaks if peak is not None]
    if not known:
        return None
    return _RULES[alert].worst(known) if alert in _RULES else max(known)


def _close(earlier: Row, later: Row, apart: int) -> bool:
    if earlier["last_step"] is None or later["since_step"] is None or earlier["since_step"] is None:
        return False
    return bool(later["since_step"] - earlier["last_step"] <= apart)
