"""GET /v1/events: a stream of what happens, so that a page is live without asking again and again."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from offpolicy_monitor.server import openapi, services
from offpolicy_monitor.server.access.guard import token_of
from offpolicy_monitor.server.http.middleware import HEAD_KEY
from offpolicy_monitor.server.http.parameters import RUN_PATTERN
from offpolicy_monitor.server.http.queries import CHECKED

MEDIA_TYPE: Final = "text/event-stream"
#: A proxy that collects an answer before it passes it on is told not to.
HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
EXAMPLE: Final = (
    'retry: 2000\n\nid: 5f1c09aa-7\nevent: step\ndata: {"run":"r1","step":120,"minibatch":0,"verdict":"warn"}\n\n'
    'id: 5f1c09aa-8\nevent: alert\ndata: {"run":"r1","id":7,"alert":"MismatchKL","severity":"warning","since_step":116,'
    '"state":"active"}\n\nid: 5f1c09aa-9\nevent: run\ndata: {"run":"r2"}\n\n: alive\n\n'
)

Run = Annotated[
    str | None, Query(pattern=RUN_PATTERN, description="Events of this run alone; it need not be there yet.")
]
LastId = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=64, description="The last event that the client has seen.")
]
_CONTENT: Final[dict[str, Any]] = {MEDIA_TYPE: {"schema": {"type": "string"}, "example": EXAMPLE}}

router = APIRouter(prefix="/v1", tags=["reading"], dependencies=CHECKED)


@router.get(
    "/events",
    summary="What happens, as server-sent events",
    response_class=StreamingResponse,
    responses={200: {"description": "A stream without an end.", "content": _CONTENT}, **openapi.problems(422, 503)},
)
async def get_events(request: Request, run: Run = None, last_id: LastId = None) -> Response:
    """`step`: a gradient step was merged; `alert`: a rule's alert changed; `run`: a run is new, changed or deleted.

    What is told is what this service has stored. `reset` says that events were missed: read anew. Of runs that the
    token is for; the stream ends soon after the token is revoked or has expired.
    """
    if HEAD_KEY in request.scope:
        return Response(media_type=MEDIA_TYPE, headers=HEADERS)
    parts, token = services.of(request), token_of(request)
    sees = (lambda run: True) if token is None else token.sees
    frames = await parts.events.listen(run, last_id, sees, lambda: parts.keys.admits(token))
    return StreamingResponse(frames, media_type=MEDIA_TYPE, headers=HEADERS)
