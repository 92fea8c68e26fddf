"""GET /v1/runs/{run}/worst: the sequences of a gradient step that stand first by some figure, to be found again.

Joins the store's summary with summary.tables.worst_figures. Knows no SQL.
"""

from typing import Annotated, Any, Literal

from fastapi import Query, Request

from offpolicy_monitor.server import models, openapi, services
from offpolicy_monitor.server.http.parameters import KnownRun, Minibatch
from offpolicy_monitor.server.http.threads import store_router
from offpolicy_monitor.store.rows.cursors import LARGEST_INTEGER
from offpolicy_monitor.summary.tables.worst_figures import worst_figures
from offpolicy_monitor.vocabulary import Gap

Step = Annotated[int | None, Query(ge=0, le=LARGEST_INTEGER, description="Training step; the latest if not named.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Most sequences in the answer.")]
OfGap = Annotated[Gap | None, Query(description="Rankings of this gap alone; else of all.")]
By = Annotated[
    Literal["abs_log_ratio_max", "log_geometric_ratio", "k3_share"] | None,
    Query(description="Rankings by this figure alone; else by all three."),
]

router = store_router()


@router.get(
    "/runs/{run}/worst",
    summary="The worst sequences of a step",
    responses=openapi.answers(models.Worst, "Sequences, worst first.", 404, 410),
)
def get_worst(
    run: KnownRun,
    request: Request,
    step: Step = None,
    minibatch: Minibatch = None,
    limit: Limit = 10,
    gap: OfGap = None,
    by: By = None,
) -> dict[str, Any]:
    """Of one gradient step, the last one of its step if not named; the merge of what has arrived."""
    step, minibatch, summary = services.of(request).store.summary(run, step, minibatch)
    found = worst_figures(summary, gap, by, limit)
    return {"sequences": [{"step": step, "minibatch": minibatch, **sequence} for sequence in found]}
