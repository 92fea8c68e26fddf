"""Documents of /metrics: one is made for all scrapers that wait for it, and sent piece by piece as each takes it.

Ten scrapers at once cost two documents and no copies. Readers that are slow to take theirs keep only so many in memory:
when one more is made, the oldest is dropped, and who still reads it is cut off. A new scrape is always answered.
"""

import weakref
from collections.abc import Iterator, Sequence
from typing import Final

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from offpolicy_monitor.exposition.formats import Collects, Format
from offpolicy_monitor.exposition.runs import RunExposition

log = structlog.get_logger("offpolicy_monitor.server")
#: Documents that are kept for readers; of two hundred runs each takes some 6 MB.
MOST_DOCUMENTS: Final = 16


class Document:
    """One scrape, in pieces; shared by all who are sent it, and gone when the last of them is."""

    def __init__(self, pieces: Sequence[bytes], content_type: str) -> None:
        self._pieces: Sequence[bytes] | None = pieces
        self.headers = {"Content-Type": content_type, "Content-Length": str(sum(map(len, pieces)))}

    @property
    def dropped(self) -> bool:
        """Whether what was not read yet can be read no more."""
        return self._pieces is None

    def drop(self) -> None:
        """Give the memory back."""
        self._pieces = None

    def read(self) -> Iterator[bytes]:
        """The pieces, until it is dropped."""
        number = 0
        while self._pieces is not None and number < len(self._pieces):
            yield self._pieces[number]
            number += 1


class Documents:
    """Makes documents, one at a time. `_alive` are those that somebody still holds, the oldest first."""

    def __init__(self, registry: Collects, runs: RunExposition) -> None:
        self._registry, self._runs = registry, runs
        self._alive: list[weakref.ref[Document]] = []

    def make(self, format: Format) -> Document:
        """What is to be seen now."""
        held = [document for document in (known() for known in self._alive) if document is not None]
        while len(held) >= MOST_DOCUMENTS:
            held.pop(0).drop()
        process = format.process(self._registry)
        made = Document([process, *self._runs.render(format), format.end], format.content_type)
        self._alive = [weakref.ref(document) for document in (*held, made)]
        return made


class DocumentResponse(Response):
    """Sends a document piece by piece, the next when the connection has taken the last one: no reader has a copy."""

    def __init__(self, document: Document) -> None:
        super().__init__(headers=document.headers)
        self._document = document

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self._document.read():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if self._document.dropped:
            # An answer that is shorter than it said: the server closes the connection, and the reader sees a failure.
            log.warning("a scrape was cut off: its reader took too long", newer=MOST_DOCUMENTS)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})
