"""POST /v1/evaluate: the figures of a batch and what given method rows would do with it; nothing is stored.

Masks and figures of sequences are sent piece by piece as they become text, so that no answer is in memory as a whole.
"""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from offpolicy_monitor.server import openapi, services
from offpolicy_monitor.server.http.answers import json_response, render
from offpolicy_monitor.server.http.body import received
from offpolicy_monitor.server.http.queries import CHECKED
from offpolicy_monitor.summary.evaluation import Detail

DetailQuery = Annotated[Detail, Query(description="How far down the answer goes.")]
#: Small pieces are sent together.
PIECE_BYTES = 64 * 1024

router = APIRouter(prefix="/v1", tags=["batches"], dependencies=CHECKED)


@router.post(
    "/evaluate",
    summary="Measure a batch and try method rows on it, without storing anything",
    openapi_extra=openapi.EVALUATE_BODY,
    responses=openapi.EVALUATE_RESPONSES,
)
async def evaluate(request: Request, detail: DetailQuery = "none") -> Response:
    """Without `methods` in the envelope the catalogue of presets runs."""
    pipeline = services.of(request).pipeline
    async with AsyncExitStack() as held:
        async with received(request, pipeline) as body:
            evaluation = await pipeline.evaluate(body, detail, held)
        if detail == "none":
            return json_response(evaluation.answer())
        return _Streamed(evaluation.pieces(render), held.pop_all())


class _Streamed(StreamingResponse):
    """JSON text in pieces; what the answer held is given back when it is sent, or when its reader is gone."""

    media_type = "application/json"

    def __init__(self, pieces: Iterator[bytes], held: AsyncExitStack) -> None:
        super().__init__(_together(pieces))
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._held:
            await super().__call__(scope, receive, send)


def _together(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of at least PIECE_BYTES, but for the last."""
    collected, size = list[bytes](), 0
    for piece in pieces:
        collected.append(piece)
        size += len(piece)
        if size >= PIECE_BYTES:
            yield b"".join(collected)
            collected, size = [], 0
    yield b"".join(collected)
