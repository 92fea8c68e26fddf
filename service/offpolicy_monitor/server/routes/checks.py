"""GET /v1/runs/{run}/checks: what is wrong with the way a run is posted, each with the line to change.

Joins what the store knows of the newest steps with the doctor, which does the thinking. Knows no SQL.
"""

from collections.abc import Sequence
from typing import Any, Final

from fastapi import Request

from offpolicy_monitor.diagnosis import collect, diagnose
from offpolicy_monitor.doctor import Arrival, Posted, look
from offpolicy_monitor.server import models, openapi, services
from offpolicy_monitor.server.http.parameters import KnownRun
from offpolicy_monitor.server.http.threads import store_router
from offpolicy_monitor.server.limits import mismatch_limits
from offpolicy_monitor.store import Store
from offpolicy_monitor.summary.step import StepSummary, merge_all
from offpolicy_monitor.vocabulary import BELIEVED

#: The newest gradient steps whose arrival is looked at, and the newest steps that count whose figures are.
MOST_ARRIVALS: Final = 200
MOST_STEPS: Final = 20

router = store_router()


@router.get(
    "/runs/{run}/checks",
    summary="What is wrong with the way a run is posted",
    responses=openapi.answers(models.Checks, "Findings, warnings first.", 404),
)
def get_checks(run: KnownRun, request: Request) -> dict[str, Any]:
    """Of the newest 200 gradient steps how they came, and of the newest 20 steps that count the figures."""
    store = services.of(request).store
    shown = store.run(run)
    arrivals = [Arrival(*row) for row in store.arrivals(run, MOST_ARRIVALS)]
    summaries = _summaries(store, run, arrivals)
    bitwise = shown["profile"] == "bitwise"
    figures = merge_all(summaries).step_figures() if summaries else {}
    posted = Posted(arrivals, figures, _causes(summaries, shown), bitwise)
    steps = list(posted.steps)
    return {"findings": look(posted), "steps": [*steps[:1], *steps[-1:]]}


def _summaries(store: Store, run: str, arrivals: Sequence[Arrival]) -> list[StepSummary]:
    """Of the last gradient steps of the newest steps that count, and of the first one of the newest, ascending.

    Two hooks of a trainer may each post a part of the log-probs, one in the first gradient step and one in the others.
    Where no step counts, of the newest one what has arrived.
    """
    found = store.summaries(run, most=MOST_STEPS) or [store.summary(run) for _ in arrivals[-1:]]
    summaries = [summary for _, _, summary in found]
    for step, minibatch, _ in found[-1:]:
        first = min((arrival.minibatch for arrival in arrivals if arrival.step == step), default=minibatch)
        summaries += [store.summary(run, step, first)[2]] if first != minibatch else []
    return summaries


def _causes(summaries: list[StepSummary], shown: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    """By name title, summary and the first thing to try of hypotheses that are believed."""
    if not summaries:
        return {}
    evidence = collect(summaries, limits=mismatch_limits(shown["profile"], shown["alerts"]))
    ranked = diagnose(evidence, shown["profile"] == "bitwise")
    return {row["name"]: (row["title"], row["summary"], row["try"][0]) for row in ranked if row["score"] >= BELIEVED}
