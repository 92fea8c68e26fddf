"""Reader: questions to a service, and its answers as they are. For people and scripts, never on a trainer's path.

Synchronous, each question on a connection of its own, with a time-out; and it raises: Refusal where the question is at
fault, Unavailable where the service is, Unreachable where there is none; the first two name the request's id, by which
the service's log has it. Knows paths and queries, not what is done with an answer.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from offpolicy_monitor.client.connection import JSON, Answer, Connection, parse
from offpolicy_monitor.errors import FieldError, OffpolicyMonitorError, Refusal, Unavailable

if TYPE_CHECKING:
    from offpolicy_monitor.client.shard import Buffers

#: Seconds without progress after which a question is given up.
TIMEOUT = 10.0
#: Runs of one page, and alerts: the most that the service answers at once.
PAGE = 1000


class Unreachable(OffpolicyMonitorError, ConnectionError):
    """Nobody answers at the address, or what answers there is no service of this project."""


class Reader:
    """Asks the service at `url`. Raises ConfigurationError for what is no address."""

    def __init__(self, url: str, timeout: float = TIMEOUT, token: str | None = None) -> None:
        parse(url)
        self.url = url.rstrip("/")
        self._timeout, self._token = timeout, token

    def get(self, place: str, query: Mapping[str, object] | None = None) -> dict[str, Any]:
        """GET of a path; a list repeats its name in the query, and None is left out."""
        return self._exchange("GET", place + asked(query or {}))

    def post(self, place: str, query: Mapping[str, object], body: "Buffers", media_type: str) -> dict[str, Any]:
        """POST of a body."""
        return self._exchange("POST", place + asked(query), body, media_type)

    def all_runs(self) -> list[dict[str, Any]]:
        """Every run, newest first."""
        found: list[dict[str, Any]] = []
        cursor: object = None
        while True:
            page = self.get("/v1/runs", {"limit": PAGE, "cursor": cursor})
            found += page["runs"]
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    def alerts(
        self, run: str | None = None, state: str | None = None, merge: int | None = None, limit: int = PAGE
    ) -> dict[str, Any]:
        """The newest alerts, of one run or of all; those of a rule up to `merge` steps apart as one."""
        return self.get("/v1/alerts", {"run": run, "state": state, "merge": merge, "limit": limit})

    def verdict(self, run: str) -> dict[str, Any]:
        """What a run comes to, in one sentence and in its parts."""
        return self.get(path(run, "verdict"))

    def diagnosis(self, run: str, first: int | None = None, last: int | None = None) -> dict[str, Any]:
        """What may cause the mismatch of the steps `first` to `last`, best first."""
        return self.get(path(run, "diagnosis"), {"from": first, "to": last})

    def checks(self, run: str) -> dict[str, Any]:
        """What is wrong with the way a run is posted, warnings first, each with the line to change."""
        return self.get(path(run, "checks"))

    def series(
        self,
        run: str,
        fields: Sequence[str],
        first: int | None = None,
        last: int | None = None,
        points: int | None = None,
        by: str | None = None,
    ) -> dict[str, Any]:
        """Figures over the steps `first` to `last`: one as columns, several as `series` in the order asked."""
        query = {"field": fields, "from": first, "to": last, "points": points, "by": by}
        return self.get(path(run, "series"), query)

    def _exchange(self, method: str, target: str, body: "Buffers" = (), media_type: str = JSON) -> dict[str, Any]:
        try:
            with closing(Connection(self.url, self._timeout, self._token)) as connection:
                answer = connection.exchange(method, target, body, media_type)
        except OSError as error:
            reason = f"no answer within {self._timeout:g} s" if isinstance(error, TimeoutError) else str(error)
            raise Unreachable(f"no service answers at {self.url}: {reason}") from error
        if answer.status >= 400:
            raise _problem(answer)
        if not answer.document:
            raise Unreachable(f"what answers at {self.url} is no service of offpolicy-monitor")
        return dict(answer.document)


def path(run: str, place: str = "") -> str:
    """Where the service has a run, or what is told of it at `place`."""
    return f"/v1/runs/{quote(run, safe='')}" + (f"/{place}" if place else "")


def asked(query: Mapping[str, object]) -> str:
    """A query as the pages write it: `?step=3&limit=1`, empty for none."""
    pairs = [
        (name, one)
        for name, value in query.items()
        for one in (value if isinstance(value, Sequence) and not isinstance(value, str) else [value])
        if one is not None
    ]
    return f"?{urlencode(pairs)}" if pairs else ""


def _problem(answer: Answer) -> Refusal | Unavailable:
    status, kind = answer.status, answer.kind or "unknown"
    detail = answer.named(str(answer.document.get("detail") or f"the service answered {status}"))
    if status >= 500 or status == 429:
        return Unavailable(status, kind, detail)
    errors = [FieldError(str(e.get("field")), str(e.get("message"))) for e in answer.document.get("errors", ())]
    return Refusal(status, kind, detail, errors)
