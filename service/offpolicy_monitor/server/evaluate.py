"""POST /v1/evaluate: the figures of a batch and what given method rows would do with it; nothing is stored."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from offpolicy_monitor.pipeline.values import Detail
from offpolicy_monitor.server import openapi, services
from offpolicy_monitor.server.answers import render
from offpolicy_monitor.server.body import received

DetailQuery = Annotated[Detail, Query(description="How far down the answer goes.")]

router = APIRouter(prefix="/v1", tags=["batches"])


@router.post(
    "/evaluate",
    summary="Measure a batch and try method rows on it, without storing anything",
    openapi_extra=openapi.EVALUATE_BODY,
    responses=openapi.EVALUATE_RESPONSES,
)
async def evaluate(request: Request, detail: DetailQuery = "none") -> Response:
    """Without `methods` in the envelope the catalogue of presets runs."""
    pipeline = services.of(request).pipeline
    async with received(request, pipeline) as body:
        answer = await pipeline.evaluate(body, detail, render)
    return Response(answer, media_type="application/json")
