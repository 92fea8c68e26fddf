"""GET /v1/alerts: breaches from their beginning to their end; GET /v1/runs/{run}/rules: what each rule says now.

Both are read from the store, which keeps what the rules said when a step completed. Knows no SQL and judges nothing.
"""

from typing import Annotated, Any, Final, Literal

from fastapi import Query, Request

from offpolicy_monitor.alerts import RULES
from offpolicy_monitor.alerts.stretches import joined
from offpolicy_monitor.notify.words import page as page_of
from offpolicy_monitor.server import models, openapi, services
from offpolicy_monitor.server.access.guard import runs_of
from offpolicy_monitor.server.baselines import baseline
from offpolicy_monitor.server.http.answers import alert_answer, rule_answer
from offpolicy_monitor.server.http.parameters import RUN_PATTERN, Cursor, KnownRun, Limit
from offpolicy_monitor.server.http.threads import store_router
from offpolicy_monitor.server.limits import critical_alone
from offpolicy_monitor.store.rows.cursors import LARGEST_INTEGER

Run = Annotated[str | None, Query(pattern=RUN_PATTERN, description="Alerts of this run alone.")]
State = Annotated[
    Literal["pending", "active", "resolved"] | None,
    Query(description="`pending` has not lasted long enough to be told, `resolved` is over; all if not given."),
]

Merge = Annotated[
    int | None, Query(ge=0, le=LARGEST_INTEGER, description="Breaches of one rule at most so many steps apart are one.")
]
#: Rules that compare a figure with the run's own beginning.
_COMPARED: Final = {rule.name: rule.baseline for rule in RULES if rule.baseline}
#: Rules whose critical threshold asks for more than the figure.
_ALONE: Final = {rule.name: rule for rule in RULES if rule.alone is not None}

router = store_router()


@router.get(
    "/alerts",
    summary="Alerts, the newest first",
    responses=openapi.answers(models.Alerts, "A page of alerts.", 404),
)
def get_alerts(
    request: Request,
    run: Run = None,
    state: State = None,
    merge: Merge = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> dict[str, Any]:
    """One row per breach of one severity of a rule, from pending to active to resolved.

    Of the runs that the token is for. With `merge`, breaches of a page that follow each other so closely are one row.
    """
    parts = services.of(request)
    states = ("pending", "active", "resolved") if state is None else (state,)
    page = parts.store.alerts(run, states, limit, cursor, runs_of(request))
    rows = page.rows if merge is None else joined(page.rows, merge)
    url = parts.settings.public_url
    pages = [page_of(url, row) for row in rows]
    if run is None:
        messages = parts.verdicts.messages(rows, pages)
    else:
        messages = [parts.verdicts.message(*each) for each in zip(rows, pages, strict=True)]
    found = [alert_answer({**row, "message": said}, url) for row, said in zip(rows, messages, strict=True)]
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
    rules = [rule_answer(state, parts.settings.public_url) for state in states]
    view = parts.store.view_run(run)
    found = {path: baseline(view, path) for path in set(_COMPARED.values())}
    for rule in rules:
        if rule["alert"] in _COMPARED:
            rule["baseline"] = found[_COMPARED[rule["alert"]]]
        if rule["alert"] in _ALONE and rule["severity"] == "critical":
            rule["alone"] = critical_alone(_ALONE[rule["alert"]], view)
    return {"step": step, "rules": rules}
