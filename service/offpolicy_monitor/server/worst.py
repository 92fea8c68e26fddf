"""GET /v1/runs/{run}/worst: the sequences of a gradient step that stand first by some figure, to be found again.

Joins the store's summary with summary.tables.worst_figures. Knows no SQL.
"""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from offpolicy_monitor.server import models, openapi, services
from offpolicy_monitor.server.answers import json_response
from offpolicy_monitor.server.names import KnownRun
from offpolicy_monitor.server.reading import LARGEST_INTEGER, Minibatch
from offpolicy_monitor.server.threads import StoreRoute
from offpolicy_monitor.summary.tables.worst_figures import worst_figures
from offpolicy_monitor.vocabulary import Gap

Step = Annotated[int | None, Query(ge=0, le=LARGEST_INTEGER, description="Training step; the latest if not named.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Most sequences in the answer.")]
OfGap = Annotated[Gap | None, Query(description="Rankings of this gap alone; else of all.")]
By = Annotated[
    Literal["abs_log_ratio_max", "log_geometric_ratio", "k3_share"] | None,
    Query(description="Rankings by this figure alone; else by all three."),
]

router = APIRouter(prefix="/v1", tags=["reading"], route_class=StoreRoute)


@router.get(
    "/runs/{run}/worst",
    summary="The worst sequences of a step",
    responses={
        200: {"model": models.Worst, "description": "Sequences, worst first."},
        **openapi.problems(404, 410, 422, 503),
    },
)
def get_worst(
    run: KnownRun,
    request: Request,
    step: Step = None,
    minibatch: Minibatch = None,
    limit: Limit = 10,
    gap: OfGap = None,
    by: By = None,
) -> Response:
    """Of one gradient step, the last one of its step if not named; the merge of what has arrived."""
    step, minibatch, summary = services.of(request).store.summary(run, step, minibatch)
    found = worst_figures(summary, gap, by, limit)
    return json_response({"sequences": [{"step": step, "minibatch": minibatch, **sequence} for sequence in found]})
