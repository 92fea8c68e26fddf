"""GET /v1/figures: what every figure means, as the catalogue has it."""

from typing import Any, Final

from fastapi import APIRouter

from offpolicy_monitor.figures import FIGURES
from offpolicy_monitor.server import models, openapi
from offpolicy_monitor.server.http.queries import CHECKED

CATALOGUE: Final = [
    {
        "path": figure.path,
        "unit": figure.unit,
        "meaning": figure.meaning,
        "source": figure.source,
        "headline": bool(figure.headline),
        "since": figure.since,
    }
    for figure in FIGURES
]

router = APIRouter(prefix="/v1", tags=["reading"], dependencies=CHECKED)


@router.get(
    "/figures",
    summary="What every figure means",
    responses={200: {"model": models.Catalogue, "description": "Every figure, by its path."}, **openapi.problems(422)},
)
def get_figures() -> dict[str, Any]:
    """Path, unit, formula and source; `{gap}`, `NAME` and the like stand for what differs from step to step."""
    return {"figures": CATALOGUE}
