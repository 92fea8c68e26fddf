"""GET (and PATCH, DELETE) under /v1/runs: what is stored, as it is stored.

Plain functions that run in threads, since the store is synchronous; writes take their turn with the writer. Shapes are
those of protocol.md. Knows no SQL.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import orjson
from fastapi import Query, Request, Response
from pydantic import StringConstraints

from offpolicy_monitor.server import models, openapi, services
from offpolicy_monitor.server.access.guard import runs_of, token_of
from offpolicy_monitor.server.http.answers import json_response, render
from offpolicy_monitor.server.http.parameters import Cursor, First, KnownRun, Last, Limit, Minibatch, StepNumber
from offpolicy_monitor.server.http.threads import store_router
from offpolicy_monitor.server.routes.changes import (
    RunChanges,
    check_correction,
    check_scope,
    read_changes,
    with_methods_in_effect,
)
from offpolicy_monitor.store import Store
from offpolicy_monitor.store.rows.cursors import Page
from offpolicy_monitor.store.rows.run_list import LONGEST_PATTERN

#: Bytes of JSON after which a page of steps ends, and how many rows are in memory as more than their bytes.
PAGE_BYTES, ROWS_AT_A_TIME = 4 << 20, 20

By = Annotated[Literal["step", "minibatch"], Query(description="One row per training step, or one per gradient step.")]
StepDetail = Annotated[
    Literal["full", "headline"],
    Query(description="`headline`: steps that count alone, with the figures that are kept narrow; read in no time."),
]
Order = Annotated[Literal["newest", "worst"], Query(description="Newest first, or what somebody should look at first.")]
Pattern = Annotated[
    str | None,
    Query(
        alias="q",
        max_length=LONGEST_PATTERN,
        description="Regular expression, found in the run's name or in one of its labels as `name=value`.",
        examples=["^llama-.*", "gpu=h100"],
    ),
]
#: Fields of one question.
MOST_FIELDS = 48
#: Characters of a field.
LONGEST_FIELD = 200
Fields = Annotated[
    list[Annotated[str, StringConstraints(max_length=LONGEST_FIELD)]],
    Query(
        alias="field",
        min_length=1,
        max_length=MOST_FIELDS,
        description="Path of a figure, `gaps.mismatch.k3`, or `policy_version`, `attempt`, `verdict`, `received_at`; "
        "repeat it for several.",
        examples=[["gaps.mismatch.k3", "gaps.staleness.k3", "verdict"]],
    ),
]
Layout = Annotated[
    Literal["columns", "tables"],
    Query(description="`tables`: fields that have the same steps share them; those that no step has are left out."),
]
Points = Annotated[int, Query(ge=1, le=10_000, description="Most points; more steps are thinned out.")]

router = store_router()


@router.get("/runs", summary="Runs", responses=openapi.answers(models.Runs, "A page of runs."))
def list_runs(
    request: Request, limit: Limit = 100, cursor: Cursor = None, order: Order = "newest", pattern: Pattern = None
) -> dict[str, Any]:
    """Those that the token is for, with last step, state and verdict, how each went and what is said of it.

    Worst first: critical ones, those that are silent and did not say that they are finished, warnings, what is pending
    or for information, healthy ones, finished ones; the newest first among equals.
    """
    parts = services.of(request)
    views, following = parts.store.view_runs(limit, cursor, order, pattern, runs_of(request))
    return {"runs": parts.verdicts.with_summaries(views), "next_cursor": following}


@router.get("/runs/{run}", summary="One run", responses=openapi.answers(models.Run, "The run.", 404))
def get_run(run: KnownRun, request: Request) -> dict[str, Any]:
    """Profile, labels, method rows, last step, state and verdict, how it went and what is said of it."""
    return _one(services.of(request), run)


def _one(parts: services.Services, run: str) -> dict[str, Any]:
    [shown] = parts.verdicts.with_summaries([parts.store.view_run(run)])
    return with_methods_in_effect(shown)


@router.get(
    "/runs/{run}/verdict",
    summary="What a run comes to, in one sentence",
    responses=openapi.answers(models.Verdict, "The sentence and its parts.", 404),
)
def get_verdict(run: KnownRun, request: Request) -> dict[str, Any]:
    """Since when, which half of the gap is at fault, what it looks like, and what to do.

    `since_step` is the first breach of the worst open severity in that half; a cause is named from a score of 0.5 on.
    """
    return services.of(request).verdicts.read(run)


@router.patch(
    "/runs/{run}",
    summary="Change what is a run's own: profile, labels, method rows, thresholds",
    responses=openapi.answers(models.Run, "The run as it is now.", 400, 404, 413, 415),
    openapi_extra=openapi.changes_body(RunChanges),
)
async def patch_run(run: KnownRun, request: Request) -> Response:
    """Fields that are not sent stay; the others are replaced as a whole, and the run is judged anew.

    Batches posted after the answer run the new rows; what is stored stays as it was measured.
    With scope ingest alone: profile, labels and finished, which trainers say of their runs.
    """
    parts = services.of(request)
    changes = await read_changes(request, parts.settings)
    check_scope(token_of(request), changes)
    await parts.pipeline.writer.call(lambda: _change(parts.store, run, changes))
    parts.events.changed(run)
    return json_response(await parts.readers.run(lambda: _one(parts, run)))


def _change(store: Store, run: str, changes: RunChanges) -> None:
    given = changes.given()
    if "correction" in given:
        check_correction(given["correction"], given["methods"] if "methods" in given else store.methods(run))
    store.update_run(run, **given)


@router.delete(
    "/runs/{run}",
    summary="Delete a run with its history",
    status_code=204,
    responses=openapi.problems(404, 422, 503),
)
async def delete_run(run: KnownRun, request: Request) -> Response:
    """Its shards, steps and figures go with it; a later batch of that name begins a new run."""
    parts = services.of(request)
    # Before the store is asked: a run of which only first halves came is not stored, and has halves to forget.
    parts.pipeline.shards.forget(run)
    parts.siblings.tell("deleted", run)
    await parts.pipeline.writer.call(lambda: parts.store.delete_run(run))
    parts.pipeline.forget(run)
    parts.siblings.tell("deleted", run)
    parts.events.changed(run, deleted=True)
    return Response(status_code=204)


@router.get(
    "/runs/{run}/steps",
    summary="Merged steps in order",
    responses=openapi.answers(models.Steps, "A page of steps.", 404),
)
def list_steps(
    run: KnownRun,
    request: Request,
    first: First = None,
    last: Last = None,
    limit: Limit = 100,
    cursor: Cursor = None,
    by: By = "step",
    detail: StepDetail = "full",
) -> dict[str, Any]:
    """By step: the last gradient step of each training step. A page ends after some 4 MiB, whatever the limit."""
    store = services.of(request).store
    rows, following = _rendered(lambda most, at: store.steps(run, first, last, most, at, by, detail), limit, cursor)
    return {"steps": rows, "next_cursor": following}


def _rendered(
    read: Callable[[int, str | None], Page], limit: int, cursor: str | None
) -> tuple[list[orjson.Fragment], str | None]:
    """Up to `limit` rows from the cursor on as JSON, few at a time, and the next cursor; no more after PAGE_BYTES."""
    rows: list[bytes] = []
    while True:
        page = read(min(ROWS_AT_A_TIME, limit - len(rows)), cursor)
        rows += map(render, page.rows)
        cursor = page.next_cursor
        if cursor is None or len(rows) >= limit or sum(map(len, rows)) >= PAGE_BYTES:
            return list(map(orjson.Fragment, rows)), cursor


@router.get(
    "/runs/{run}/steps/{step}",
    summary="One merged gradient step",
    responses=openapi.answers(models.Step, "The step.", 404),
)
def get_step(run: KnownRun, step: StepNumber, request: Request, minibatch: Minibatch = None) -> dict[str, Any]:
    """The merge of what has arrived, also while shards are missing."""
    return services.of(request).store.step(run, step, minibatch)


@router.get(
    "/runs/{run}/series",
    summary="Figures over the steps",
    responses=openapi.answers(models.Series | models.SeveralSeries | models.Tables, "Columns of equal length.", 404),
)
def get_series(
    run: KnownRun,
    request: Request,
    fields: Fields,
    first: First = None,
    last: Last = None,
    points: Points = 1000,
    by: By = "minibatch",
    layout: Layout = "columns",
) -> dict[str, Any]:
    """Columns for plotting; null where a step lacks the figure. Of several fields `series` has them in the order asked.

    What is kept narrow is read together and shares one x; more steps than `points` are thinned, and each column keeps
    the least and the largest value of each stretch. A figure that is not kept narrow is read off 256 steps at most,
    spread evenly over the range. `verdict` is accept, warn or skip, of the training step; null before it is judged.
    """
    store = services.of(request).store
    if layout == "tables":
        return {"tables": store.tables(run, fields, first, last, points, by)}
    found = store.all_series(run, fields, first, last, points, by)
    return found[0] if len(fields) == 1 else {"series": found}
