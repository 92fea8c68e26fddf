"""GET /healthz and /readyz: the process is alive; it can do its work."""

import asyncio
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from offpolicy_monitor._version import __version__
from offpolicy_monitor.server import services
from offpolicy_monitor.server.http.answers import render
from offpolicy_monitor.server.http.queries import CHECKED
from offpolicy_monitor.server.readiness import of_all

#: How long other workers have to say how they are, seconds: longer than their database may take.
SIBLINGS_SECONDS: Final = 1.7
#: The answer of /healthz.
ALIVE: Final = {"status": "alive", "version": __version__}

router = APIRouter(tags=["operation"], dependencies=CHECKED)


@router.get("/healthz", summary="The process is alive")
async def healthz() -> dict[str, str]:
    """Answers as long as the event loop turns; looks at nothing else."""
    return dict(ALIVE)


_ROUTE: Final = router.routes[0]
_ANSWER: Final = Response(render(ALIVE), media_type="application/json")


def is_direct(scope: Scope) -> bool:
    """Whether somebody asks for /healthz, and nothing else."""
    asks = scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == "/healthz"
    return asks and not scope["query_string"]


async def answer_directly(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request that `is_direct`: where hundreds ask, the framework takes five times as long over each."""
    scope["route"] = _ROUTE
    await _ANSWER(scope, receive, send)


@router.get("/readyz", summary="Shards can be stored, schema current, device warm, no stage stuck")
async def readyz(request: Request) -> JSONResponse:
    """200 when every check holds, else 503 with `reasons`: why each one does not that does not. `reason` is the first.

    `measured_by` is the form that measures batches now: `torch`, `fused`, or `torch, fused`, of which the latter
    measures what is not large enough for a GPU; where the device has failed, `measured_on` is the one in use and
    `device_fallbacks` says how often. `stuck` names the stages that no longer get on, with the age of their oldest job
    in seconds. Of several workers every check holds for all that answer, and `workers` says how many do.
    """
    parts = services.of(request)
    own, others = await asyncio.gather(parts.readiness.look(), parts.siblings.ask("state", SIBLINGS_SECONDS))
    state = of_all(own, others)
    answer: dict[str, Any] = {"status": "ready" if state.ready else "not ready", "checks": state.checks}
    if parts.siblings.workers > 1:
        answer["workers"] = {"answering": 1 + len(others), "of": parts.siblings.workers}
    if not state.ready:
        answer |= {"reason": next(iter(state.reasons.values())), "reasons": state.reasons}
    measurer = parts.pipeline.measurer
    answer["measured_by"] = measurer.form
    if measurer.fallbacks:
        answer |= {"measured_on": measurer.device_name, "device_fallbacks": measurer.fallbacks}
    answer |= {"stuck": state.stuck} if state.stuck else {}
    return JSONResponse(answer, 200 if state.ready else 503, {} if state.ready else {"Retry-After": "1"})
