"""POST /v1/runs/{run}/batches: one shard of one gradient step, answered after it is committed."""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from starlette.types import Receive, Scope, Send

from offpolicy_monitor.errors import Problem
from offpolicy_monitor.pipeline.values import Tell
from offpolicy_monitor.server import openapi, services
from offpolicy_monitor.server.http.answers import batch_answer, figures, nothing
from offpolicy_monitor.server.http.body import received
from offpolicy_monitor.server.http.parameters import RunName
from offpolicy_monitor.server.http.problems import refusal_of
from offpolicy_monitor.server.http.queries import CHECKED
from offpolicy_monitor.vocabulary import RUN_NAME

Detail = Literal["full", "none"]
DetailQuery = Annotated[Detail, Query(description="`none` leaves the figures of the shard out, which is quicker.")]
#: What is told of a shard.
TOLD: Final[Mapping[Detail, Tell]] = {"full": figures, "none": nothing}

router = APIRouter(prefix="/v1", tags=["batches"], dependencies=CHECKED)


@router.post(
    "/runs/{run}/batches",
    summary="Post one shard of a gradient step",
    openapi_extra=openapi.BATCH_BODY,
    responses=openapi.BATCH_RESPONSES,
)
async def post_batch(run: RunName, request: Request, detail: DetailQuery = "full") -> Response:
    """200 means: committed, fsynced, and counted exactly once. The same shard again answers the same figures."""
    parts = services.of(request)
    async with received(request, parts.pipeline, run) as body:
        outcome = await parts.pipeline.ingest(run, body, TOLD[detail])
    return Response(batch_answer(run, outcome, parts.settings.public_url), media_type="application/json")


_ROUTE: Final = router.routes[0]
_PATH: Final = re.compile(f"/v1/runs/(?P<run>{RUN_NAME})/batches")
_DETAILS: Final[Mapping[bytes, Detail]] = {b"": "full", b"detail=full": "full", b"detail=none": "none"}


def is_direct(scope: Scope) -> bool:
    """Whether a request is a post of a batch about which the framework would find nothing to say."""
    is_post = scope["type"] == "http" and scope["method"] == "POST" and scope["query_string"] in _DETAILS
    return is_post and _PATH.fullmatch(scope["path"]) is not None


async def answer_directly(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request that `is_direct`: the framework takes longer over it than the server under it."""
    named = _PATH.fullmatch(scope["path"])
    assert named is not None
    scope["route"], scope["path_params"] = _ROUTE, named.groupdict()
    response: Response
    try:
        response = await post_batch(named["run"], Request(scope, receive, send), _DETAILS[scope["query_string"]])
    except Problem as problem:
        response = refusal_of(scope, problem)
    await response(scope, receive, send)
