"""POST /v1/runs/{run}/batches: one shard of one gradient step, answered after it is committed."""

from fastapi import APIRouter, Request, Response

from offpolicy_monitor.server import openapi, services
from offpolicy_monitor.server.http.answers import batch_answer, json_response
from offpolicy_monitor.server.http.body import received
from offpolicy_monitor.server.http.parameters import RunName

router = APIRouter(prefix="/v1", tags=["batches"])


@router.post(
    "/runs/{run}/batches",
    summary="Post one shard of a gradient step",
    openapi_extra=openapi.BATCH_BODY,
    responses=openapi.BATCH_RESPONSES,
)
async def post_batch(run: RunName, request: Request) -> Response:
    """200 means: committed, fsynced, and counted exactly once. The same shard again answers the same figures."""
    parts = services.of(request)
    async with received(request, parts.pipeline) as body:
        outcome = await parts.pipeline.ingest(run, body)
    return json_response(batch_answer(run, outcome, parts.settings.public_url))
