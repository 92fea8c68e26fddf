"""GET /v1/runs/{run}/diagnosis: what the mismatch of a range of steps looks like, best guess first.

Joins the store's summaries with the diagnosis package, which does the thinking. Knows no SQL.
"""

from typing import Any, Final

from fastapi import Request

from offpolicy_monitor.diagnosis import collect, diagnose
from offpolicy_monitor.server import models, openapi, services
from offpolicy_monitor.server.http.parameters import First, KnownRun, Last
from offpolicy_monitor.server.http.threads import store_router
from offpolicy_monitor.server.limits import mismatch_limits
from offpolicy_monitor.store import Store

#: The newest steps of the range that are looked at.
MOST_STEPS: Final = 50

router = store_router()


@router.get(
    "/runs/{run}/diagnosis",
    summary="What causes the mismatch",
    responses=openapi.answers(models.Diagnosis, "Hypotheses, best first.", 404),
)
def get_diagnosis(run: KnownRun, request: Request, first: First = None, last: Last = None) -> dict[str, Any]:
    """Of all gradient steps of the newest 50 steps in the range that count; `steps` names the first and the last."""
    return diagnosis(services.of(request).store, run, first, last)


def diagnosis(store: Store, run: str, first: int | None = None, last: int | None = None) -> dict[str, Any]:
    """What is answered; found once while the run stands still."""
    return store.answered(run, ("diagnosis", first, last), lambda: _diagnosis(store, run, first, last))


def _diagnosis(store: Store, run: str, first: int | None, last: int | None) -> dict[str, Any]:
    shown = store.run(run)
    found = store.whole_summaries(run, first, last, MOST_STEPS)
    steps = [step for step, _ in found]
    evidence = collect(
        [summary for _, summary in found], steps, limits=mismatch_limits(shown["profile"], shown["alerts"])
    )
    return {"hypotheses": diagnose(evidence, shown["profile"] == "bitwise"), "steps": [*steps[:1], *steps[-1:]]}
