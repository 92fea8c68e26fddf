"""Reads a request body: judged by its headers first, admitted, then read once into a pooled buffer.

Knows HTTP headers and deadlines; nothing of what the bytes mean. The buffer is released when the block ends, so no
view of the body may outlive it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request
from starlette.types import Message

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.pipeline.buffers import SMALLEST, BodyBuffer, BufferPool
from offpolicy_monitor.pipeline.gone import Gone
from offpolicy_monitor.pipeline.pace import Pace
from offpolicy_monitor.pipeline.stages import Pipeline
from offpolicy_monitor.pipeline.values import Body
from offpolicy_monitor.server.http.deadlines import Begun, deadlines_of
from offpolicy_monitor.server.http.problems import FAULT_KEY
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.wire.decode import MEDIA_TYPES
from offpolicy_monitor.wire.encoding import ENCODINGS

# Reserved for a body before its first byte, and how many times what has arrived after it: one that brings nothing costs
# little, whatever it declares.
FIRST_PIECE, AHEAD = SMALLEST, 16
JSON = "application/json"
#: Seconds before it is looked for whether a client has gone that has sent its body.
LOOKED_FOR_AFTER = 0.05


@asynccontextmanager
async def received(request: Request, pipeline: Pipeline, run: str | None = None) -> AsyncIterator[Body]:
    """The body, complete; raises 408, 413, 415 or 503 (and 400 into the void where the client went away).

    Of a `run` that sends more than it may, 429.
    """
    settings = pipeline.settings
    # Of a header that came more than once the first counts.
    sent = dict(reversed(request.scope["headers"]))
    media_type, encoding = _media_type(sent.get(b"content-type", b"")), _encoding(sent.get(b"content-encoding", b""))
    limit = _limit(media_type, encoding, settings)
    length = _length(sent.get(b"content-length"), settings, limit)
    first = FIRST_PIECE if length is None else min(length, FIRST_PIECE)
    arrival = _Arrival(request, settings, length or FIRST_PIECE, limit)
    with pipeline.rates.counted(run, length or 0, arrival.pace):
        async with pipeline.budget.reserve(first, length, arrival.pace) as reservation:
            buffer = BodyBuffer(pipeline.buffers, first)
            try:
                while (piece := await arrival.next()) is not None:
                    here = len(buffer) + len(piece)
                    if here > reservation.size:
                        await reservation.grow(_ahead(here, length, settings))
                        buffer.reserve(min(reservation.size, length or here))
                        arrival.pace.length = max(arrival.pace.length, reservation.size)
                    buffer.write(piece)
                pipeline.metrics.received(encoding.removeprefix("x-"), len(buffer))
                reservation.shrink(len(buffer))
                with _Departure(request) as gone:
                    yield Body(buffer.view(), media_type, encoding, gone)
            finally:
                buffer.release()


def _ahead(here: int, length: int | None, settings: Settings) -> int:
    """Bytes to hold when so many are here; the buffer of a body of unknown length doubles."""
    return min(2 * here, settings.max_body_bytes) if length is None else max(here, min(AHEAD * here, length))


class _Departure:
    """A future that is done when the client goes away, which after a complete body is all that it can still say.

    It is not looked for in the first moments, in which most are answered: a task for each would cost more than that.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._gone: Gone = self._loop.create_future()
        self._watching: asyncio.Task[None] | None = None

    def __enter__(self) -> Gone:
        self._begins = deadlines_of(self._loop).call_later(LOOKED_FOR_AFTER, self._begin)
        return self._gone

    def __exit__(self, *raised: object) -> None:
        self._begins.cancel()
        if self._watching is not None:
            self._watching.cancel()

    def _begin(self) -> None:
        self._watching = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self._gone.set_result(None)


def _media_type(sent: bytes) -> str:
    """The media type, refused before the body is read where nothing here reads it."""
    media_type = sent.decode("latin-1").partition(";")[0].strip().lower()
    if media_type not in MEDIA_TYPES:
        message = f"must be one of {', '.join(MEDIA_TYPES)}"
        raise Refusal.of_field(415, "unsupported-media-type", "Content-Type", message)
    return media_type


def _encoding(sent: bytes) -> str:
    encoding = sent.decode("latin-1").strip().lower() or "identity"
    if encoding != "identity" and encoding not in ENCODINGS:
        message = f"must be one of identity, {', '.join(ENCODINGS)}, and only one"
        raise Refusal.of_field(415, "unsupported-encoding", "Content-Encoding", message)
    return encoding


def _limit(media_type: str, encoding: str, settings: Settings) -> str:
    """The setting that bounds what is received: JSON as it is may be smaller than other bodies."""
    plain = media_type == JSON and encoding == "identity"
    return "max_json_bytes" if plain and settings.max_json_bytes < settings.max_body_bytes else "max_body_bytes"


def _length(sent: bytes | None, settings: Settings, limit: str) -> int | None:
    """Content-Length, refused where it is over the limit before a byte is read; None for a chunked body."""
    if sent is None:
        return None
    if not sent.isdigit():
        raise Refusal.of_field(400, "content-length", "Content-Length", "is not a number of bytes")
    if int(sent) > getattr(settings, limit):
        raise _too_large(int(sent), settings, limit)
    return int(sent)


def _too_large(size: int, settings: Settings, name: str) -> Refusal:
    limit = getattr(settings, name)
    return Refusal.over_limit(413, "too-large", "body", f"{size} bytes", limit, settings.variable(name))


async def read_small(request: Request, settings: Settings) -> bytes:
    """A short JSON body in one piece: 415 for another media type, 413 past `max_change_bytes`, 408 past a deadline."""
    if request.headers.get("content-type", JSON).partition(";")[0].strip().lower() != JSON:
        raise Refusal.of_field(415, "unsupported-media-type", "Content-Type", f"must be {JSON}")
    buffer = BodyBuffer(BufferPool(0), SMALLEST)
    arrival = _Arrival(request, settings, SMALLEST, "max_change_bytes")
    while (piece := await arrival.next()) is not None:
        buffer.write(piece)
    return bytes(buffer.view())


class _Arrival:
    """Waits for the pieces of one body; what counts is the time spent waiting for the client, not for room.

    `limit` names the setting that bounds it.
    """

    def __init__(self, request: Request, settings: Settings, length: int, limit: str) -> None:
        self._request, self._settings, self._limit = request, settings, limit
        self.pace = Pace(length, settings.body_timeout)
        self._more = True

    async def next(self) -> bytes | None:
        """The next piece of the body, None after the last.

        Refusal 408 past either deadline, 413 over the limit, 400 on a cut, and what the connection has against the
        rest.
        """
        if not self._more:
            return None
        message = await self._message()
        if fault := self._request.scope.get(FAULT_KEY):
            raise fault
        if message["type"] == "http.disconnect":
            raise Refusal(400, "client-disconnected", "the connection ended before the body did")
        piece: bytes = message.get("body", b"")
        self._more = message.get("more_body", False)
        self.pace.received += len(piece)
        if self.pace.received > getattr(self._settings, self._limit):
            raise _too_large(self.pace.received, self._settings, self._limit)
        return piece

    async def _message(self) -> Message:
        message = Begun(self._request.receive())
        if message.is_there:
            return await message
        idle, left = self._settings.body_idle_timeout, self._settings.body_timeout - self.pace.waited
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(min(idle, left)) as deadline:
                with self.pace.waiting(lambda: deadline.reschedule(loop.time())):
                    return await message
        except TimeoutError:
            raise self._late("body_idle_timeout" if idle < left else "body_timeout") from None

    def _late(self, name: str) -> Refusal:
        if self.pace.is_cut_off:
            return self._too_slow()
        what = "no more of the body arrived" if name == "body_idle_timeout" else "the body did not arrive"
        seconds, variable = getattr(self._settings, name), self._settings.variable(name)
        return Refusal(408, "body-timeout", f"{what} within {seconds:g} s; {variable} sets the limit")

    def _too_slow(self) -> Refusal:
        seconds, variable = self._settings.body_timeout, self._settings.variable("body_timeout")
        detail = (
            f"at its pace the body would not arrive within {seconds:g} s ({variable}), and others wait for its room; "
            f"{self._settings.variable('inflight_bytes')} makes more"
        )
        return Refusal(408, "body-timeout", detail)
