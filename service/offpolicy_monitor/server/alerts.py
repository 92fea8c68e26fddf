"""GET /v1/alerts: what the rules say of each run at its newest step that counts.

Rules are evaluated when they are asked for, as a function of the stored figures. Knows no SQL.
"""

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request, Response

from offpolicy_monitor.alerts import RULES, History, RuleState, evaluate
from offpolicy_monitor.server import models, openapi, services
from offpolicy_monitor.server.answers import json_response
from offpolicy_monitor.server.names import RUN_PATTERN
from offpolicy_monitor.store import Store

PATHS: Final = tuple(sorted({path for rule in RULES for path in rule.inputs}))

#: Without `run`, the most recently active runs.
MOST_RUNS: Final = 100

Run = Annotated[str | None, Query(pattern=RUN_PATTERN, description="This run alone; else the newest 100.")]
State = Annotated[
    Literal["pending", "active"] | None, Query(description="`active` has lasted long enough to be told; else all.")
]

router = APIRouter(prefix="/v1", tags=["reading"])


@router.get(
    "/alerts",
    summary="What the rules say",
    responses={200: {"model": models.Alerts, "description": "Breached rules."}, **openapi.problems(404, 422, 503)},
)
def get_alerts(request: Request, run: Run = None, state: State = None) -> Response:
    """Rules that are breached at the newest step that counts of each run, the worst of their severities each."""
    store = services.of(request).store
    rows = [store.run(run)] if run is not None else store.runs(MOST_RUNS, None).rows
    found = [alert for row in rows for alert in _of_run(store, row["run"], row["profile"])]
    return json_response({"alerts": [alert for alert in found if state in (None, alert["state"])]})


def _of_run(store: Store, run: str, profile: str) -> list[dict[str, Any]]:
    history = History.of(store.history(run, PATHS), PATHS)
    states = evaluate(RULES, history, profile)
    return [_alert(run, history.steps[-1], state) for state in states if state.state in ("pending", "active")]


def _alert(run: str, last_step: int, state: RuleState) -> dict[str, Any]:
    return {
        "alert": state.rule.name,
        "severity": state.severity,
        "state": state.state,
        "run": run,
        "since_step": state.since_step,
        "last_step": last_step,
        "breach_steps": state.breach_steps,
        "value": state.value,
        "threshold": state.threshold,
        "expression": state.rule.expression,
        "summary": state.rule.summary,
    }
