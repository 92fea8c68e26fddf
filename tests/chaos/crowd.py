"""A crowd: connections that cost a service something and bring it nothing, each of a kind, until told to leave.

Run as a program of its own, `python -m tests.chaos.crowd PORT CONNECTIONS`: it says when all are connected, leaves when
its input ends, and then tells as JSON how often the connections of each kind were made.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.contents import Key, body

#: Seconds between the bytes of slow clients, and before one that was sent away comes back.
SLOW, BACK_AFTER = 0.5, 0.2
#: Seconds after which an impatient client gives up on an answer, and between its bursts.
IMPATIENCE, RETRIED_EVERY = 0.05, 2.0
#: Seconds between the pieces of those that pipeline.
PIPELINED_EVERY: Final = 10
POST: Final = (
    b"POST /v1/runs/crowd/batches?detail=none HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
)
GET: Final = b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
#: What takes long to make, or is large.
UNREAD: Final = (b"/metrics", b"/v1/runs", b"/openapi.json")
#: A shard that all of them post.
KEY: Final = Key("crowd", 0, 0)
SHARD: Final = body(KEY)[1]
WHOLE: Final = POST + b"Content-Length: %d\r\n\r\n" % len(SHARD) + SHARD


@dataclass(frozen=True)
class Link:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def drip(self, sent: bytes, size: int) -> None:
        """Send it slowly, so many bytes at a time."""
        for start in range(0, len(sent), size):
            self.writer.write(sent[start : start + size])
            await self.writer.drain()
            if self.reader.at_eof():
                return
            await asyncio.sleep(SLOW)

    async def until_sent_away(self) -> None:
        """Read until the service ends the connection."""
        while await self.reader.read(4096):
            pass


async def slow_head(link: Link) -> None:
    """A head of which a byte comes now and then."""
    await link.drip(POST + b"X-Slow: " + b"a" * 4096, 1)


async def slow_body(link: Link) -> None:
    """A body of a megabyte that comes too slowly to arrive in time."""
    await link.drip(POST + b"Content-Length: 1048576\r\n\r\n" + b" " * 1048576, 1024)


async def chunked(link: Link) -> None:
    """A body of unknown length, in chunks of a byte."""
    await link.drip(POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 4096, 6)


async def idle(link: Link) -> None:
    """A connection that is kept after its answer."""
    link.writer.write(GET % b"/healthz")
    await link.until_sent_away()


async def silent(link: Link) -> None:
    """A connection on which nothing ever comes, and from which nothing is read."""
    await asyncio.sleep(3600)


async def half_closed(link: Link) -> None:
    """A client that has ended its side in the middle of a body, and stays."""
    link.writer.write(POST + b"Content-Length: 100\r\n\r\n{")
    link.writer.write_eof()
    await link.until_sent_away()


async def half_read(link: Link) -> None:
    """A client that stands still in the middle of a body, and neither sends nor reads any more."""
    link.writer.write(POST + b"Content-Length: 100000\r\n\r\n{")
    await asyncio.sleep(3600)


async def pipelined(link: Link) -> None:
    """Forty requests in one piece, whose answers are read slowly; after a while as many more."""
    while not link.reader.at_eof():
        link.writer.write(GET % b"/healthz" * 38 + WHOLE * 2)
        for _ in range(PIPELINED_EVERY):
            await asyncio.sleep(1)
            await link.reader.read(65_536)


async def unread(link: Link) -> None:
    """Requests for large answers, of which nothing is read."""
    link.writer.write(b"".join(GET % path for path in UNREAD) * 20)
    await asyncio.sleep(3600)


async def impatient(link: Link) -> None:
    """Posts that are given up on at once and sent again, each time later: the connections of all come in bursts."""
    link.writer.write(WHOLE)
    with suppress(TimeoutError):
        async with asyncio.timeout(IMPATIENCE):
            await link.reader.read(1)
    link.writer.transport.abort()
    await asyncio.sleep(RETRIED_EVERY)


async def listening(link: Link) -> None:
    """A reader of events, who reads none of them."""
    link.writer.write(GET % b"/v1/events")
    await asyncio.sleep(3600)


Kind = Callable[[Link], Awaitable[None]]
#: How many of a hundred connections are of each kind.
KINDS: Final[Mapping[Kind, int]] = {
    slow_head: 20,
    slow_body: 18,
    chunked: 8,
    idle: 14,
    silent: 8,
    half_closed: 6,
    half_read: 6,
    pipelined: 6,
    unread: 4,
    impatient: 5,
    listening: 5,
}


@dataclass
class Crowd:
    """`connections` to a port; `made` counts them by kind."""

    port: int
    connections: int
    made: Counter[str] = field(default_factory=Counter)

    @property
    def kinds(self) -> list[Kind]:
        """The kind of each connection, the kinds in turn."""
        hundred = sorted(
            ((number / count, kind.__name__, kind) for kind, count in KINDS.items() for number in range(count)),
            key=lambda found: found[:2],
        )
        return [hundred[number % len(hundred)][2] for number in range(self.connections)]

    async def stay(self, left: asyncio.Event) -> None:
        """Keep all connections, each made anew when the service ends it, until `left` is set."""
        members = [asyncio.create_task(self._member(kind)) for kind in self.kinds]
        await left.wait()
        for member in members:
            member.cancel()
        await asyncio.gather(*members, return_exceptions=True)

    async def _member(self, kind: Kind) -> None:
        while True:
            with suppress(OSError):
                await self._once(kind)
            await asyncio.sleep(BACK_AFTER)

    async def _once(self, kind: Kind) -> None:
        # Of what is not read, little is taken: the rest waits at the service.
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1024)
        self.made[kind.__name__] += 1
        try:
            await kind(Link(reader, writer))
        finally:
            writer.transport.abort()


async def main(port: int, connections: int) -> None:
    """Stay until the input ends."""
    crowd, left = Crowd(port, connections), asyncio.Event()
    loop = asyncio.get_running_loop()
    staying = asyncio.create_task(crowd.stay(left))
    while sum(crowd.made.values()) < connections:
        await asyncio.sleep(0.02)
    print("here", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    left.set()
    await staying
    print(json.dumps(crowd.made), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
