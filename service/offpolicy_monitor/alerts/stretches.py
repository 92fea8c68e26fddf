"""Breaches of a rule that follow each other closely, as one: what a lane of a plot or a list for people shows."""

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def joined(rows: Sequence[Row], apart: int) -> list[dict[str, Any]]:
    """Alerts, the newest first, where a breach that began at most `apart` steps after the end of another one is one
    with it: it has the later one's state and times of its end, the earlier one's beginning, and `joined` breaches.

    A breach on the wall clock has no steps and stays as it is.
    """
    found: list[dict[str, Any]] = []
    open_: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        key = row["run"], row["alert"], row["severity"]
        later = open_.get(key)
        if later is not None and _close(row, later, apart):
            later |= {name: row[name] for name in ("since_step", "started_at", "active_at")}
            later |= {"joined": later["joined"] + 1, "breach_steps": later["breach_steps"] + row["breach_steps"]}
        else:
            open_[key] = {**row, "joined": 1}
            found.append(open_[key])
    return found


def _close(earlier: Row, later: Row, apart: int) -> bool:
    if earlier["last_step"] is None or later["since_step"] is None or earlier["since_step"] is None:
        return False
    return bool(later["since_step"] - earlier["last_step"] <= apart)
