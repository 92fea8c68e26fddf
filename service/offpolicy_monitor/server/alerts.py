"""GET /v1/alerts: breaches from their beginning to their end; GET /v1/runs/{run}/rules: what each rule says now.

Both are read from the store, which keeps what the rules said when a step completed. Knows no SQL and judges nothing.
"""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from offpolicy_monitor.server import models, openapi, services
from offpolicy_monitor.server.answers import alert_answer, json_response, rule_answer
from offpolicy_monitor.server.names import RUN_PATTERN, KnownRun
from offpolicy_monitor.server.threads import StoreRoute

Run = Annotated[str | None, Query(pattern=RUN_PATTERN, description="Alerts of this run alone.")]
State = Annotated[
    Literal["pending", "active", "resolved"] | None,
    Query(description="`pending` has not lasted long enough to be told, `resolved` is over; all if not given."),
]
Limit = Annotated[int, Query(ge=1, le=1000, description="Most rows in the answer.")]
Cursor = Annotated[str | None, Query(max_length=256, description="`next_cursor` of the page before.")]

router = APIRouter(prefix="/v1", tags=["reading"], route_class=StoreRoute)


@router.get(
    "/alerts",
    summary="Alerts, the newest first",
    responses={200: {"model": models.Alerts, "description": "A page of alerts."}, **openapi.problems(404, 422, 503)},
)
def get_alerts(
    request: Request, run: Run = None, state: State = None, limit: Limit = 100, cursor: Cursor = None
) -> Response:
    """One row a breach of one severity of a rule, from pending to active to resolved."""
    parts = services.of(request)
    states = ("pending", "active", "resolved") if state is None else (state,)
    page = parts.store.alerts(run, states, limit, cursor)
    found = [alert_answer(row, parts.settings.public_url) for row in page.rows]
    return json_response({"alerts": found, "next_cursor": page.next_cursor})


@router.get(
    "/runs/{run}/rules",
    summary="What each rule says of a run",
    responses={200: {"model": models.Rules, "description": "Every rule."}, **openapi.problems(404, 422, 503)},
)
def get_rules(run: KnownRun, request: Request) -> Response:
    """Every rule and severity at the newest step that counts: quiet, pending, active; `silent` says what is missing."""
    parts = services.of(request)
    step, states = parts.store.states(run)
    return json_response({"step": step, "rules": [rule_answer(state, parts.settings.public_url) for state in states]})
