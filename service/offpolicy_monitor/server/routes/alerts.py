"""GET /v1/alerts: breaches from their beginning to their end; GET /v1/runs/{run}/rules: what each rule says now.

Both are read from the store, which keeps what the rules said when a step completed. Knows no SQL and judges nothing.
"""

from typing import Annotated, Any, Literal

from fastapi import Query, Request

from offpolicy_monitor.server import models, openapi, services
from offpolicy_monitor.server.http.answers import alert_answer, rule_answer
from offpolicy_monitor.server.http.parameters import RUN_PATTERN, Cursor, KnownRun, Limit
from offpolicy_monitor.server.http.threads import store_router

Run = Annotated[str | None, Query(pattern=RUN_PATTERN, description="Alerts of this run alone.")]
State = Annotated[
    Literal["pending", "active", "resolved"] | None,
    Query(description="`pending` has not lasted long enough to be told, `resolved` is over; all if not given."),
]

router = store_router()


@router.get(
    "/alerts",
    summary="Alerts, the newest first",
    responses=openapi.answers(models.Alerts, "A page of alerts.", 404),
)
def get_alerts(
    request: Request, run: Run = None, state: State = None, limit: Limit = 100, cursor: Cursor = None
) -> dict[str, Any]:
    """One row per breach of one severity of a rule, from pending to active to resolved."""
    parts = services.of(request)
    states = ("pending", "active", "resolved") if state is None else (state,)
    page = parts.store.alerts(run, states, limit, cursor)
    found = [alert_answer(row, parts.settings.public_url) for row in page.rows]
    return {"alerts": found, "next_cursor": page.next_cursor}


@router.get(
    "/runs/{run}/rules",
    summary="What each rule says of a run",
    responses=openapi.answers(models.Rules, "Every rule.", 404),
)
def get_rules(run: KnownRun, request: Request) -> dict[str, Any]:
    """Every rule and severity at the newest step that counts: quiet, pending, active; `silent` says what is missing."""
    parts = services.of(request)
    step, states = parts.store.states(run)
    return {"step": step, "rules": [rule_answer(state, parts.settings.public_url) for state in states]}
