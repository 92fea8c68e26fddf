"""Alerts in memory, as the store gives them: what a notifier is tested against."""

from collections.abc import Mapping, Sequence
from typing import Any

PUBLIC_URL = "http://monitor.example:8900"
ALERT: Mapping[str, Any] = {
    "id": 1,
    "alert": "MismatchKL",
    "severity": "critical",
    "state": "active",
    "run": "r1",
    "since_step": 96,
    "last_step": 120,
    "breach_steps": 5,
    "value": 0.02,
    "peak": 0.05,
    "active_step": 100,
    "resolved_step": None,
    "threshold": 0.01,
    "half": "mismatch",
    "inhibited_by": None,
    "evidence": [],
    "expression": "mismatch k3",
    "summary": "Engine and trainer disagree about the same tokens",
    "runbook": f"{PUBLIC_URL}/runbook#MismatchKL",
    "started_at": 1_700_000_000.0,
    "active_at": 1_700_000_060.5,
    "resolved_at": None,
}


class Alerts:
    """An AlertSource. `told` outlives a notifier, as the database does."""

    def __init__(self, *alerts: Mapping[str, Any]) -> None:
        self.rows = {alert["id"]: dict(alert) for alert in alerts}
        self.told: dict[int, str] = {}
        self.marks: list[tuple[int, str]] = []
        self.asked: list[int] = []

    def add(self, **changes: Any) -> None:
        alert = {**ALERT, **changes}
        self.rows = {**self.rows, alert["id"]: alert}

    def resolve(self, alert_id: int, at: float = 1_700_000_120.0) -> None:
        self.add(**{**self.rows[alert_id], "state": "resolved", "resolved_at": at})

    def untold(self, limit: int) -> Sequence[Mapping[str, Any]]:
        return [row for row in self.rows.values() if self.told.get(row["id"]) != row["state"]][:limit]

    def mark_told(self, alert_id: int, state: str) -> None:
        self.told[alert_id] = state
        self.marks.append((alert_id, state))

    def message(self, alert: Mapping[str, Any]) -> str | None:
        self.asked.append(alert["id"])
        message: str | None = alert.get("message")
        return message

    def firing(self, resolved_since: float) -> Sequence[Mapping[str, Any]]:
        return [r for r in self.rows.values() if r["state"] == "active" or (r["resolved_at"] or 0) >= resolved_since]
