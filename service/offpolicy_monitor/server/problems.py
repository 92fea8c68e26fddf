"""Problem documents (RFC 9457): what every refusal and every failure looks like on the wire.

`type` is `urn:offpolicy-monitor:problem:<kind>`: stable, compared as a string, and never to be fetched, so that it does
not depend on where a service happens to run. `about:blank` is not used: each kind has a name that a counter shows too.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus

import orjson
from starlette.responses import Response

from offpolicy_monitor.errors import FieldError, Problem, Unavailable

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:offpolicy-monitor:problem:"
SCOPE_KEY = "offpolicy_monitor.problem"


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
        self.kind, self.detail = kind, detail
        document: dict[str, object] = {
            "type": TYPE_PREFIX + kind,
            "title": HTTPStatus(status).phrase,
            "status": int(status),
            "detail": detail,
        }
        if errors:
            document["errors"] = [{"field": error.field, "message": error.message} for error in errors]
        super().__init__(orjson.dumps(document), int(status), dict(headers or {}))


def response_to(problem: Problem) -> ProblemResponse:
    """The document of a problem that the code raised; a busy service says when to come back."""
    headers = {"Retry-After": str(problem.retry_after)} if isinstance(problem, Unavailable) else {}
    return ProblemResponse(problem.status, problem.kind, problem.detail, problem.errors, headers)
