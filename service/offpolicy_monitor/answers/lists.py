"""Lists over all runs: the runs, worst first, and the alerts, open ones first."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from offpolicy_monitor.answers.spark import spark
from offpolicy_monitor.answers.style import LEVELS, SIGNS, Style, level_of
from offpolicy_monitor.answers.table import Column, table
from offpolicy_monitor.verdict.numbers import duration, number

#: Block characters of a run's k3.
SPARK: Final = 16
WORDS: Final = {
    "healthy": "Healthy", "drifting": "Drifting", "off_policy": "Off-policy", "data_wrong": "Data wrong",
    "alarm": "Alarm", "too_early": "Too early", "silent": "Silent", "finished": "Finished",
    "not_measured": "Not measured",
}  # fmt: skip
COUNTED: Final = {"critical": "critical", "warn": "warning", "unknown": "not judged", "healthy": "healthy"}
STATES: Final = {"active": "open", "pending": "pending", "resolved": "over"}
#: Before the name of an alert for which the one above speaks.
UNDER: Final = "└ "
Row = Mapping[str, Any]
_STATE: Final = re.compile(r"^(Drifting|Healthy|Finished|Data wrong|Off-policy) (?=since|at)|^Too early to judge: ")


def runs(page: Mapping[str, Any], style: Style, now: float) -> list[str]:
    """A page of runs, worst first: how many of which kind, then a row each."""
    found: Sequence[Mapping[str, Any]] = page["runs"]
    if not found:
        return ["No run yet."]
    levels = [level_of(run["summary"]) for run in found]
    parts = [f"{levels.count(level)} {word}" for level, word in COUNTED.items() if level in levels]
    first = "the first " if page["next_cursor"] else ""
    sparks = [run["spark"] or {"field": "", "values": []} for run in found]
    columns = [
        Column("", [f"{SIGNS[each]} {WORDS[run['summary']['state']]}" for each, run in zip(levels, found, strict=True)],
               colours=levels),
        Column("run", [run["run"] for run in found], cut=14),
        Column("step", [_text(run["last_step"]) for run in found], right=True),
        Column("k3", [_last(one) for one in sparks], right=True),
        Column("mismatch k3", [spark(one["values"], SPARK) for one in sparks], optional=1),
        Column("steps/min", [figure(run["steps_per_minute"]) for run in found], right=True, optional=4),
        Column("last batch", [_ago(run["last_batch_at"], now) for run in found], right=True, optional=3),
        Column("why", [brief(run["summary"]["head"]) for run in found], cut=36, optional=2),
    ]  # fmt: skip
    return [f"{first}{len(found)} run{'' if len(found) == 1 else 's'}: {', '.join(parts)}", "", *table(columns, style)]


def alerts(found: Sequence[Mapping[str, Any]], style: Style, of_one_run: bool = False) -> list[str]:
    """Open alerts first, each with those that it speaks for under it, then pending ones, then what is over."""
    if not found:
        return ["No rule has fired."]
    order = {state: index for index, state in enumerate(STATES)}
    ranked = sorted(found, key=lambda row: -(_step(row)))
    ranked = sorted(ranked, key=lambda row: (order[row["state"]], -list(LEVELS).index(row["severity"])))
    ranked, under = _under_roots(ranked)
    levels = [LEVELS[row["severity"]] for row in ranked]
    states = [row["state"] for row in found]
    counts = [f"{states.count(state)} {word}" for state, word in STATES.items() if state in states]
    columns = [
        Column("", [f"{SIGNS[each]} {row['severity']}" for each, row in zip(levels, ranked, strict=True)],
               colours=levels),
        Column("alert", [UNDER * is_under + row["alert"] for row, is_under in zip(ranked, under, strict=True)], cut=12),
        Column("run", [] if of_one_run else [row["run"] for row in ranked], cut=14),
        Column("state", [STATES[row["state"]] for row in ranked]),
        Column("from", [_text(row["since_step"]) for row in ranked], right=True),
        Column("to", [_text(row["last_step"]) if row["state"] == "resolved" else "now" for row in ranked], right=True,
               optional=2),
        Column("peak", [figure(_peak(row)) for row in ranked], right=True),
        Column("threshold", [figure(row["threshold"]) for row in ranked], right=True, optional=3),
        Column("what it says", [row["summary"] for row in ranked], cut=30, optional=1),
    ]  # fmt: skip
    return [f"alerts: {', '.join(counts)}", "", *table(columns, style)]


def _under_roots(ranked: Sequence[Row]) -> tuple[list[Row], list[bool]]:
    """Rows in their order, but open ones for which another one speaks right after that one; and which these are."""
    roots = {(row["run"], row["alert"]) for row in ranked if row["state"] == "active" and not row.get("inhibited_by")}
    spoken_for: dict[tuple[str, str], list[Row]] = {}
    first = []
    for row in ranked:
        root = row["run"], row.get("inhibited_by") or ""
        if row["state"] == "active" and root in roots:
            spoken_for.setdefault(root, []).append(row)
        else:
            first.append(row)
    found: list[tuple[Row, bool]] = []
    for row in first:
        found.append((row, False))
        if row["state"] == "active":
            found += [(other, True) for other in spoken_for.get((row["run"], row["alert"]), ())]
    return [row for row, _ in found], [is_under for _, is_under in found]


def brief(head: str) -> str:
    """The head of a sentence without the state that stands beside it."""
    rest = _STATE.sub("", head)
    return rest[:1].upper() + rest[1:]


def figure(value: float | None, digits: int = 2) -> str:
    """A number as people read it, a dash for none."""
    return "–" if value is None else number(value, digits)


def _peak(row: Mapping[str, Any]) -> float | None:
    peak: float | None = row.get("peak")
    return row["value"] if peak is None else peak


def _step(row: Mapping[str, Any]) -> int:
    return int(row["since_step"] or 0)


def _text(value: object) -> str:
    return "–" if value is None else str(value)


def _last(shown: Mapping[str, Any]) -> str:
    values = shown["values"]
    total = " total" if values and shown["field"].startswith("gaps.total") else ""
    return figure(values[-1] if values else None) + total


def _ago(moment: str | None, now: float) -> str:
    return f"{duration(max(0.0, now - datetime.fromisoformat(moment).timestamp()))} ago" if moment else "–"
