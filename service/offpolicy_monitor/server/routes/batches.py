"""POST /v1/runs/{run}/batches: one shard of one gradient step, answered after it is committed."""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from offpolicy_monitor.pipeline.values import Tell
from offpolicy_monitor.server import openapi, services
from offpolicy_monitor.server.http.answers import batch_answer, figures, nothing
from offpolicy_monitor.server.http.body import received
from offpolicy_monitor.server.http.parameters import RunName
from offpolicy_monitor.vocabulary import RUN_NAME

Detail = Literal["full", "none"]
DetailQuery = Annotated[Detail, Query(description="`none` leaves the figures of the shard out, which is quicker.")]
#: What is told of a shard.
TOLD: Final[Mapping[Detail, Tell]] = {"full": figures, "none": nothing}

_NAME: Final = re.compile(RUN_NAME)
_DIRECT: Final[Mapping[bytes, Detail]] = {b"": "full", b"detail=full": "full", b"detail=none": "none"}


class DirectRoute(APIRoute):
    """The route of `post_batch`, which goes to it directly where the framework would find nothing to say.

    The framework takes three times as long over a request as the server under it.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; what may have to be refused is left to the framework."""
        run, detail = scope["path_params"]["run"], _DIRECT.get(scope["query_string"])
        if scope["method"] != "POST" or detail is None or not _NAME.fullmatch(run):
            await super().handle(scope, receive, send)
            return
        response = await post_batch(run, Request(scope, receive, send), detail)
        await response(scope, receive, send)


router = APIRouter(prefix="/v1", tags=["batches"], route_class=DirectRoute)


@router.post(
    "/runs/{run}/batches",
    summary="Post one shard of a gradient step",
    openapi_extra=openapi.BATCH_BODY,
    responses=openapi.BATCH_RESPONSES,
)
async def post_batch(run: RunName, request: Request, detail: DetailQuery = "full") -> Response:
    """200 means: committed, fsynced, and counted exactly once. The same shard again answers the same figures."""
    parts = services.of(request)
    async with received(request, parts.pipeline) as body:
        outcome = await parts.pipeline.ingest(run, body, TOLD[detail])
    return Response(batch_answer(run, outcome, parts.settings.public_url), media_type="application/json")
