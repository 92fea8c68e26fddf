"""Documents of /metrics: one is made for all scrapers that wait for it, and sent piece by piece as each takes it.

Ten scrapers at once cost two documents and no copies. How many may be held by scrapers that are slow to take them is
bounded.
"""

import weakref
from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.exposition.formats import Format
from offpolicy_monitor.exposition.runs import RunExposition

#: Documents that are being sent at once; of two hundred runs each takes some 6 MB.
MOST_DOCUMENTS: Final = 16


class Document:
    """One scrape, in pieces; shared by all who are sent it, and gone when the last of them is."""

    def __init__(self, pieces: Sequence[bytes], content_type: str) -> None:
        self.pieces = pieces
        self.headers = {"Content-Type": content_type, "Content-Length": str(sum(map(len, pieces)))}


class Documents:
    """Makes documents. `alive` are those that somebody still holds."""

    def __init__(self, registry: CollectorRegistry, runs: RunExposition) -> None:
        self._registry, self._runs = registry, runs
        self._alive: weakref.WeakSet[Document] = weakref.WeakSet()

    def make(self, format: Format) -> Document:
        """What is to be seen now; Unavailable where too many documents are still being sent."""
        if len(self._alive) >= MOST_DOCUMENTS:
            raise Unavailable(503, "busy", f"{MOST_DOCUMENTS} scrapes are still being sent to slow readers")
        process = format.process(self._registry)
        document = Document([process, *self._runs.render(format), format.end], format.content_type)
        self._alive.add(document)
        return document


class DocumentResponse(Response):
    """Sends a document piece by piece, the next when the connection has taken the last one: no reader has a copy."""

    def __init__(self, document: Document) -> None:
        super().__init__(headers=document.headers)
        self._document = document

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self._document.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
