"""Problem documents (RFC 9457): what every refusal and every failure looks like on the wire.

`type` is `urn:offpolicy-monitor:problem:<kind>`: stable, compared as a string, and never to be fetched, so that it does
not depend on where a service happens to run. `about:blank` is not used: each kind has a name that a counter shows too.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from offpolicy_monitor.errors import MAX_ERRORS, FieldError, Problem, Unavailable, quotable
from offpolicy_monitor.server.http.request_ids import instance_of

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:offpolicy-monitor:problem:"
SCOPE_KEY = "offpolicy_monitor.problem"
#: Bytes of a document's texts. Whoever makes a message quotes clients briefly; these hold where one did not.
LONGEST_FIELD, LONGEST_MESSAGE, LONGEST_DETAIL, ALL_ERRORS = 256, 1000, 2000, 4000
#: Where the connection leaves the Refusal of a request that it cannot read (any more).
FAULT_KEY = "offpolicy_monitor.fault"


class ProblemResponse(Response):
    """A problem document; the middleware counts it by `kind` and logs `detail`."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.kind, self.detail = kind, _cut(detail, LONGEST_DETAIL)
        self._document: dict[str, object] = {
            "type": TYPE_PREFIX + kind,
            "title": HTTPStatus(status).phrase,
            "status": int(status),
            "detail": self.detail,
        }
        if errors:
            self._document["errors"] = _first(errors)
        super().__init__(orjson.dumps(self._document), int(status), dict(headers or {}))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request of this scope, whose id the document then has."""
        if (instance := instance_of(scope)) is not None:
            self.body = orjson.dumps(self._document | {"instance": instance})
            self.headers["Content-Length"] = str(len(self.body))
        await super().__call__(scope, receive, send)


def _first(errors: Sequence[FieldError]) -> list[dict[str, str]]:
    """The first errors, as many as a document has room for."""
    shown, left = [], ALL_ERRORS
    for error in errors[:MAX_ERRORS]:
        entry = {"field": _cut(error.field, LONGEST_FIELD), "message": _cut(error.message, LONGEST_MESSAGE)}
        left -= sum(len(text.encode()) for text in entry.values())
        if left < 0:
            break
        shown.append(entry)
    return shown


def _cut(text: str, most: int) -> str:
    """Text of at most so many bytes, every letter of which JSON holds in two bytes or as it is."""
    text = quotable(text, most)
    encoded = text.encode()
    return text if len(encoded) <= most else f"{encoded[: most - 3].decode(errors='ignore')}..."


def refusal_of(scope: Scope, problem: Problem) -> ProblemResponse:
    """The document of a problem, left where the middleware finds it: it counts and logs refusals.

    The problem forgets where it was raised: a frame that waited for a job refers to it by that job, and would keep
    the body, which is another's room by now, until the collector of garbage comes by.
    """
    response: ProblemResponse
    response = scope[SCOPE_KEY] = response_to(problem)
    problem.__traceback__ = None
    return response


def response_to(problem: Problem) -> ProblemResponse:
    """The document of a problem that the code raised; a busy service says when to come back."""
    headers = {"Retry-After": str(problem.retry_after)} if isinstance(problem, Unavailable) else {}
    return ProblemResponse(problem.status, problem.kind, problem.detail, problem.errors, headers)
