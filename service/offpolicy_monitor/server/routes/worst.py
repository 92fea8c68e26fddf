"""GET /v1/runs/{run}/worst: the sequences of one gradient step, or of many, that stand first by some figure.

Joins the store's summaries with summary.tables.worst, and has what rows would keep measured by the pipeline.
Knows no SQL.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Query, Request, Response

from offpolicy_monitor.errors import Refusal, quoted
from offpolicy_monitor.methods import PRESETS, MethodRow, restored
from offpolicy_monitor.pipeline.kept import Keep
from offpolicy_monitor.server import models, openapi, services
from offpolicy_monitor.server.http.answers import json_response
from offpolicy_monitor.server.http.parameters import First, KnownRun, Last, Minibatch
from offpolicy_monitor.server.http.threads import store_router
from offpolicy_monitor.store import Store
from offpolicy_monitor.store.rows.cursors import LARGEST_INTEGER
from offpolicy_monitor.summary.tables.worst import By, OfStep, Standing, first_of, still_first, together
from offpolicy_monitor.vocabulary import Gap

#: Steps of a range that are looked at: all of a shorter one, else this many spread evenly over it.
MOST_STEPS: Final = 200
#: Rows that one answer decides.
MOST_METHODS: Final = 8

Step = Annotated[int | None, Query(ge=0, le=LARGEST_INTEGER, description="Training step; the latest if not named.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Most sequences in the answer.")]
OfGap = Annotated[Gap | None, Query(description="Rankings of this gap alone; else of all.")]
ByFigure = Annotated[By | None, Query(description="Rankings by this figure alone; else by all three.")]

MethodNames = Annotated[
    list[str] | None,
    Query(
        max_length=MOST_METHODS,
        description="Rows of the run: what each would keep of every sequence with raw tokens; repeat it for several.",
    ),
]

router = store_router()


@router.get(
    "/runs/{run}/worst",
    summary="The worst sequences of a step, or of a range of steps",
    responses=openapi.answers(models.Worst, "Sequences, worst first.", 404, 410),
)
async def get_worst(
    run: KnownRun,
    request: Request,
    step: Step = None,
    minibatch: Minibatch = None,
    first: First = None,
    last: Last = None,
    limit: Limit = 10,
    gap: OfGap = None,
    by: ByFigure = None,
    methods: MethodNames = None,
) -> Response:
    """Of one gradient step, the last one of its step if not named; the merge of what has arrived.

    With `from` or `to`, of the last gradient steps of all steps in the range that count, up to 200 spread evenly.
    """
    parts = services.of(request)
    asked = partial(_of_range, first=first, last=last) if (first, last) != (None, None) else None
    if asked is not None and (step, minibatch) != (None, None):
        field = "minibatch" if step is None else "step"
        raise Refusal.of_field(422, "unknown-value", field, "does not go with from and to")
    standing = asked or partial(_of_step, step=step, minibatch=minibatch)

    def read() -> tuple[list[Standing], list[MethodRow]]:
        rows = _rows(parts.store, run, methods or ())
        return first_of(standing(parts.store, run, gap, by), gap, by)[:limit], rows

    found, rows = await parts.readers.run(read)
    keep = await parts.pipeline.keep(together([one.sequence for one in found]), rows) if rows else None
    return await parts.readers.run(lambda: json_response(_answer(found, keep)))


def _answer(found: Sequence[Standing], keep: Sequence[Keep] | None) -> dict[str, Any]:
    """What is kept goes with raw tokens alone."""
    answers = [one.answer() for one in found]
    for answer, of_rows in zip(answers, keep or (), strict=keep is not None):
        if "columns" in answer:
            answer["keep"] = of_rows
    return {"sequences": answers}


def _of_step(
    store: Store, run: str, gap: str | None, by: str | None, step: int | None, minibatch: int | None
) -> list[OfStep]:
    return [OfStep.of(*store.summary(run, step, minibatch))]


def _of_range(
    store: Store, run: str, gap: str | None, by: str | None, first: int | None, last: int | None
) -> list[OfStep]:
    """The worst of all; of one step after the other, since raw tokens of hundreds would be large."""
    found: list[OfStep] = []
    for step, minibatch in store.own_summaries(run, first, last, MOST_STEPS):
        try:
            found.append(OfStep.of(*store.summary(run, step, minibatch)))
        except Refusal as refusal:
            if refusal.status != 410:  # meanwhile it was merged, or it cannot be read
                raise
        found = still_first(found, gap, by)
    return found


def _rows(store: Store, run: str, names: Sequence[str]) -> list[MethodRow]:
    """The run's rows of these names, each once."""
    if not names:
        return []
    stored = store.methods(run)
    rows = {row.name: row for row in (PRESETS if stored is None else restored(stored))}
    unknown = next((name for name in names if name not in rows), None)
    if unknown is not None:
        message = f"{quoted(unknown)} is no row of the run; its rows: {', '.join(rows)}"
        raise Refusal.of_field(422, "unknown-value", "methods", message)
    return [rows[name] for name in dict.fromkeys(names)]
