"""What a run's open alerts come to: one alert per rule, and the advice to its trainer.

Rows are those of rows.tables.alerts as mappings.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from offpolicy_monitor.store.rows.alerts import evidence_of, inhibited
from offpolicy_monitor.store.rows.tables import ACTIVE, RESOLVED

_WORST_FIRST: Final = {"critical": 0, "warning": 1, "info": 2}


def worst_of_each_rule(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of open alerts of one run one per rule: an active one before a pending one, then the worst; the worst first.

    Each with its evidence, as rows.alerts has it; none of those that are over, and may come back.
    """
    open_ = [row for row in rows if row["state"] != RESOLVED]
    spoken_for = inhibited(open_)
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(open_, key=lambda row: (row["state"] != ACTIVE, _WORST_FIRST[row["severity"]], row["id"])):
        found.setdefault(row["alert"], row)
    return [{**row, "evidence": evidence_of(row, spoken_for)} for row in found.values()]


def verdict(rows: Iterable[Mapping[str, Any]]) -> str:
    """The advice: `skip` the update while a critical alert is active, `warn` while a warning is, else `accept`.

    Alerts on the wall clock, which have no step, say nothing of an update: a run that ended was not wrong for it. Nor
    does one whose rule is quiet: it is kept for people, should it come back.
    """
    active = {
        row["severity"]
        for row in rows
        if row["state"] == ACTIVE and row["since_step"] is not None and row["quiet_since"] is None
    }
    return "skip" if "critical" in active else "warn" if "warning" in active else "accept"
