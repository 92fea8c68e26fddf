"""Reads a request body: judged by its headers first, admitted, then read once into a pooled buffer.

Knows HTTP headers and deadlines; nothing of what the bytes mean. The buffer is released when the block ends, so no
view of the body may outlive it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.pipeline.buffers import SMALLEST, BodyBuffer, BufferPool
from offpolicy_monitor.pipeline.stages import Pipeline
from offpolicy_monitor.pipeline.values import Body
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.wire.decode import MEDIA_TYPES
from offpolicy_monitor.wire.encoding import ENCODINGS, RATIO_FREE_BYTES

# JSON numbers become Python objects while they are parsed: up to this many bytes for each byte of text.
JSON_EXPANSION = 8
JSON = "application/json"


@asynccontextmanager
async def received(request: Request, pipeline: Pipeline) -> AsyncIterator[Body]:
    """The body, complete; raises 408, 413, 415 or 503 (and 400 into the void where the client went away)."""
    settings = pipeline.settings
    media_type, encoding = _media_type(request), _encoding(request)
    length = _length(request, settings)
    async with pipeline.budget.reserve(_needed(length, media_type, encoding, settings)) as reservation:
        buffer = BodyBuffer(pipeline.buffers, SMALLEST if length is None else length)
        try:
            await _read(request, buffer, settings)
            pipeline.metrics.received(encoding.removeprefix("x-"), len(buffer))
            reservation.shrink(_needed(len(buffer), media_type, encoding, settings))
            yield Body(buffer.view(), media_type, encoding)
        finally:
            buffer.release()


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


def _needed(length: int | None, media_type: str, encoding: str, settings: Settings) -> int:
    """Bytes to reserve: the body, what it may decompress to, and what parsing JSON takes on top."""
    body = settings.max_body_bytes if length is None else length
    decoded = 0
    if encoding != "identity":
        decoded = min(settings.max_decoded_bytes, max(RATIO_FREE_BYTES, settings.max_decoded_ratio * body))
    parsed = JSON_EXPANSION * min(decoded or body, settings.max_json_bytes) if media_type == JSON else 0
    return body + decoded + parsed


async def read_small(request: Request, settings: Settings) -> bytes:
    """A short JSON body in one piece: 415 for another media type, 413 past SMALL bytes, 408 past the deadline."""
    if request.headers.get("content-type", JSON).partition(";")[0].strip().lower() != JSON:
        raise Refusal.of_field(415, "unsupported-media-type", "Content-Type", f"must be {JSON}")
    buffer = BodyBuffer(BufferPool(0), SMALLEST)
    await _read(request, buffer, settings.model_copy(update={"max_body_bytes": SMALLEST}))
    return bytes(buffer.view())


async def _read(request: Request, buffer: BodyBuffer, settings: Settings) -> None:
    try:
        async with asyncio.timeout(settings.body_timeout):
            await _read_all(request, buffer, settings)
    except TimeoutError:
        detail = f"the body did not arrive within {settings.body_timeout:g} s; OFFPOLICY_BODY_TIMEOUT sets the limit"
        raise Refusal(408, "body-timeout", detail) from None


async def _read_all(request: Request, buffer: BodyBuffer, settings: Settings) -> None:
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Refusal(400, "client-disconnected", "the connection ended before the body did")
        chunk = message.get("body", b"")
        if len(buffer) + len(chunk) > settings.max_body_bytes:
            raise _too_large(len(buffer) + len(chunk), settings)
        buffer.write(chunk)
        more = message.get("more_body", False)
