"""What a run's open alerts come to: one alert per rule, and the advice to its trainer.

Rows are those of tables.alerts as mappings.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, select

from offpolicy_monitor.store.rows.tables import ACTIVE, alerts

#: From the best advice to the worst.
VERDICTS: Final = ("accept", "warn", "skip")
_WORST_FIRST: Final = {"critical": 0, "warning": 1, "info": 2}


def worst_of_each_rule(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of open alerts of one run one per rule: an active one before a pending one, then the worst; the worst first."""
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: (row["state"] != ACTIVE, _WORST_FIRST[row["severity"]], row["id"])):
        found.setdefault(row["alert"], row)
    return list(found.values())


def verdict(rows: Iterable[Mapping[str, Any]]) -> str:
    """The advice: `skip` the update while a critical alert is active, `warn` while a warning is, else `accept`."""
    active = {row["severity"] for row in rows if row["state"] == ACTIVE}
    return "skip" if "critical" in active else "warn" if "warning" in active else "accept"


def verdicts_of(connection: Connection, run_ids: Sequence[int]) -> dict[int, str]:
    """The verdict of each of these runs, by id."""
    columns = (alerts.c.run_id, alerts.c.severity, alerts.c.state)
    query = select(*columns).where(alerts.c.run_id.in_(run_ids), alerts.c.state == ACTIVE)
    rows = [dict(row) for row in connection.execute(query).mappings()]
    return {run: verdict([row for row in rows if row["run_id"] == run]) for run in run_ids}
