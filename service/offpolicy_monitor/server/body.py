"""Reads a request body: judged by its headers first, admitted, then read once into a pooled buffer.

Knows HTTP headers and deadlines; nothing of what the bytes mean. The buffer is released when the block ends, so no
view of the body may outlive it.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request
from starlette.types import Message

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.pipeline.buffers import SMALLEST, BodyBuffer, BufferPool
from offpolicy_monitor.pipeline.stages import Pipeline
from offpolicy_monitor.pipeline.turns import Gone
from offpolicy_monitor.pipeline.values import Body
from offpolicy_monitor.server.problems import FAULT_KEY
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.wire.decode import MEDIA_TYPES
from offpolicy_monitor.wire.encoding import ENCODINGS

# Reserved for a chunked body before its first byte; it grows as bytes arrive, so one that brings none costs little.
FIRST_PIECE = 1 << 20
JSON = "application/json"


@asynccontextmanager
async def received(request: Request, pipeline: Pipeline) -> AsyncIterator[Body]:
    """The body, complete; raises 408, 413, 415 or 503 (and 400 into the void where the client went away)."""
    settings = pipeline.settings
    media_type, encoding = _media_type(request), _encoding(request)
    length = _length(request, settings)
    async with pipeline.budget.reserve(FIRST_PIECE if length is None else length) as reservation:
        buffer = BodyBuffer(pipeline.buffers, SMALLEST if length is None else length)
        try:
            async for piece in _Arrival(request, settings).pieces():
                if len(buffer) + len(piece) > reservation.size:
                    await reservation.grow(min(2 * (len(buffer) + len(piece)), settings.max_body_bytes))
                buffer.write(piece)
            pipeline.metrics.received(encoding.removeprefix("x-"), len(buffer))
            reservation.shrink(len(buffer))
            async with _departure(request) as gone:
                yield Body(buffer.view(), media_type, encoding, gone)
        finally:
            buffer.release()


@asynccontextmanager
async def _departure(request: Request) -> AsyncIterator[Gone]:
    """A future that is done when the client goes away, which after a complete body is all that it can still say."""
    gone: Gone = asyncio.get_running_loop().create_future()

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        gone.set_result(None)

    watching = asyncio.create_task(watch())
    try:
        yield gone
    finally:
        watching.cancel()


def _media_type(request: Request) -> str:
    """The media type, refused before the body is read where nothing here reads it."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in MEDIA_TYPES:
        message = f"must be one of {', '.join(MEDIA_TYPES)}"
        raise Refusal.of_field(415, "unsupported-media-type", "Content-Type", message)
    return media_type


def _encoding(request: Request) -> str:
    encoding = request.headers.get("content-encoding", "").strip().lower() or "identity"
    if encoding != "identity" and encoding not in ENCODINGS:
        message = f"must be one of identity, {', '.join(ENCODINGS)}, and only one"
        raise Refusal.of_field(415, "unsupported-encoding", "Content-Encoding", message)
    return encoding


def _length(request: Request, settings: Settings) -> int | None:
    """Content-Length, refused where it is over the limit before a byte is read; None for a chunked body."""
    sent = request.headers.get("content-length")
    if sent is None:
        return None
    if not sent.isascii() or not sent.isdigit():
        raise Refusal.of_field(400, "content-length", "Content-Length", "is not a number of bytes")
    if int(sent) > settings.max_body_bytes:
        raise _too_large(int(sent), settings)
    return int(sent)


def _too_large(size: int, settings: Settings) -> Refusal:
    limit = settings.max_body_bytes
    return Refusal.over_limit(413, "too-large", "body", f"{size} bytes", limit, settings.variable("max_body_bytes"))


async def read_small(request: Request, settings: Settings) -> bytes:
    """A short JSON body in one piece: 415 for another media type, 413 past SMALL bytes, 408 past the deadline."""
    if request.headers.get("content-type", JSON).partition(";")[0].strip().lower() != JSON:
        raise Refusal.of_field(415, "unsupported-media-type", "Content-Type", f"must be {JSON}")
    buffer = BodyBuffer(BufferPool(0), SMALLEST)
    async for piece in _Arrival(request, settings.model_copy(update={"max_body_bytes": SMALLEST})).pieces():
        buffer.write(piece)
    return bytes(buffer.view())


class _Arrival:
    """Waits for the pieces of one body; what counts is the time spent waiting for the client, not for room."""

    def __init__(self, request: Request, settings: Settings) -> None:
        self._request, self._settings = request, settings
        self._left = settings.body_timeout

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body in the pieces that arrive. Refusal 408 past either deadline, 413 over the limit, 400 on a cut, and
        what the connection has against the rest."""
        received, more = 0, True
        while more:
            message = await self._next()
            if fault := self._request.scope.get(FAULT_KEY):
                raise fault
            if message["type"] == "http.disconnect":
                raise Refusal(400, "client-disconnected", "the connection ended before the body did")
            piece, more = message.get("body", b""), message.get("more_body", False)
            received += len(piece)
            if received > self._settings.max_body_bytes:
                raise _too_large(received, self._settings)
            yield piece

    async def _next(self) -> Message:
        idle = self._settings.body_idle_timeout
        began = time.monotonic()
        try:
            async with asyncio.timeout(min(idle, self._left)):
                message = await self._request.receive()
        except TimeoutError:
            raise self._late("body_idle_timeout" if idle < self._left else "body_timeout") from None
        self._left -= time.monotonic() - began
        return message

    def _late(self, name: str) -> Refusal:
        what = "no more of the body arrived" if name == "body_idle_timeout" else "the body did not arrive"
        seconds, variable = getattr(self._settings, name), self._settings.variable(name)
        return Refusal(408, "body-timeout", f"{what} within {seconds:g} s; {variable} sets the limit")
