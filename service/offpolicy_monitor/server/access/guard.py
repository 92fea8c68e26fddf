"""Guard: asks for a token before anything of a request is read or reserved, and tells the audit log.

Pure ASGI, before the routes and before the direct way of batches alike. 401 where nobody is known, 403 where the token
has no such scope or is not for the run, and where a browser sends a change for a foreign page.
"""

import base64
import binascii
from collections.abc import Collection, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offpolicy_monitor.access import ANY_RUN, AccessToken
from offpolicy_monitor.audit import LOG
from offpolicy_monitor.errors import Problem, Refusal, quotable
from offpolicy_monitor.server.access.doors import Door, Doors
from offpolicy_monitor.server.access.keys import Keys
from offpolicy_monitor.server.http.problems import refusal_of
from offpolicy_monitor.server.http.request_ids import ID_KEY

#: In the scope of a request: its token, None where none is asked for.
TOKEN_KEY: Final = "offpolicy_monitor.token"
#: Each in a line of its own: browsers read one challenge per line.
CHALLENGES: Final = ('Basic realm="offpolicy-monitor", charset="UTF-8"', 'Bearer realm="offpolicy-monitor"')
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
#: What a browser calls the site of a page that belongs to what it asks; "none" is a person.
OWN_SITES: Final = frozenset({"same-origin", "none"})
HOW: Final = "send `Authorization: Bearer TOKEN`, or as a browser any user with the token as password"


class Guard:
    """Wraps the application. `public_url` is where browsers may come from, beside the address that they ask."""

    def __init__(self, app: ASGIApp, keys: Keys, doors: Doors, public_url: str) -> None:
        self._app, self._keys, self._doors = app, keys, doors
        self._public = _origin(public_url)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        found = self._doors.of(scope["method"], scope["path"])
        door, route, named = found or (None, None, {})
        about = _About(scope, door, named.get("run"))
        try:
            self._check_origin(scope)
            scope[TOKEN_KEY] = about.token = self._admitted(scope, door, named, about)
        except Problem as problem:
            scope["route"] = route
            response = refusal_of(scope, problem)
            if problem.status == 401:
                for challenge in CHALLENGES:
                    response.headers.append("WWW-Authenticate", challenge)
            if problem.status in (401, 403):
                about.refused(problem.status, problem.kind)
            await response(scope, receive, send)
            return
        await self._app(scope, receive, about.told(send) if door is not None and door.changes else send)

    def _check_origin(self, scope: Scope) -> None:
        """A browser says from which page a change comes; no page of others may send one with what the browser knows."""
        if scope["method"] in SAFE:
            return
        for origin in _headers(scope, b"origin"):
            if not all(_origin(origin)) or _origin(origin) not in self._own(scope):
                message = f"a page of {quotable(origin)!r} may not change anything here; OFFPOLICY_PUBLIC_URL names one"
                raise Refusal.of_field(403, "foreign-origin", "Origin", message)
        for site in _headers(scope, b"sec-fetch-site"):
            if site not in OWN_SITES:
                message = f"a page of others ({quotable(site)!r}) may not change anything here"
                raise Refusal.of_field(403, "foreign-origin", "Sec-Fetch-Site", message)

    def _own(self, scope: Scope) -> Collection[tuple[str, str]]:
        """Where own pages come from: the address that was asked, which a proxy may serve by https, and the public one.

        Not by http where https is known to be spoken: whoever can change what is read in the clear makes such pages.
        """
        own = {self._public}
        for host in _headers(scope, b"host"):
            secure = _origin(f"https://{host}")
            own.add(secure)
            if scope["scheme"] == "http" and secure != self._public:
                own.add(_origin(f"http://{host}"))
        return own

    def _admitted(
        self, scope: Scope, door: Door | None, named: Mapping[str, str], about: "_About"
    ) -> AccessToken | None:
        """The token of a request; None where none is asked for. Where there is no route any token is heard."""
        if (door is not None and not door.scopes) or not self._keys.required(door is not None and door.is_frame):
            return None
        token = about.token = self._identified(scope)
        self._check_valid(token)
        if door is None:
            return token
        if not token.has(door.scopes):
            has, needed = " ".join(sorted(token.scopes)), " or ".join(door.scopes)
            message = f"{door.method} {door.path} needs scope {needed}; the token {token.id} has {has}"
            raise Refusal(403, "scope-missing", message)
        _check_runs(token, door, named.get("run"), scope)
        self._keys.used(token)
        return token

    def _identified(self, scope: Scope) -> AccessToken:
        """Who sends this; Refusal 401, the same for every text that is no token of this service."""
        sent = _headers(scope, b"authorization")
        if not sent:
            raise Refusal(401, "token-required", f"this service asks for an access token: {HOW}")
        token = self._keys.proved(_text(sent[0]) if len(sent) == 1 else "")
        if token is None:
            raise Refusal(401, "unknown-token", f"this is no token of this service: {HOW}")
        return token

    def _check_valid(self, token: AccessToken) -> None:
        """Refusal 401 where it is over."""
        state = self._keys.state(token)
        if state != "valid":
            raise Refusal(401, f"token-{state}", f"the token {token.id} is {state}; ask for a new one")


def token_of(request: Request) -> AccessToken | None:
    """The token of a request that came through; None where none is asked for."""
    token: AccessToken | None = request.scope.get(TOKEN_KEY)
    return token


def runs_of(request: Request) -> str:
    """The pattern of the runs that a listing shows."""
    token = token_of(request)
    return ANY_RUN if token is None else token.runs


def _check_runs(token: AccessToken, door: Door, run: str | None, scope: Scope) -> None:
    """Refusal 403 where a request is about runs that its token is not for."""
    if token.runs == ANY_RUN:
        return
    if door.runs == "all":
        message = f"{door.path} is about all runs; the token {token.id} is for {token.runs}"
        raise Refusal(403, "run-not-allowed", message)
    asked = [run] if door.runs == "named" else _asked_runs(scope) if door.runs == "listed" else []
    for name in asked:
        if name is not None and not token.sees(name):
            message = f"the token {token.id} is for the runs {token.runs}; {quotable(name)!r} is none of them"
            raise Refusal(403, "run-not-allowed", message)


def _asked_runs(scope: Scope) -> list[str]:
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    return [value for name, value in query if name == "run"]


def _origin(url: str) -> tuple[str, str]:
    """Scheme, and host with port as browsers write them: without the port that the scheme has anyway."""
    try:
        parts = urlsplit(url.lower())
        usual = parts.port == {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return "", ""
    return parts.scheme, parts.netloc.rpartition(":")[0] if usual else parts.netloc


def _headers(scope: Scope, wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == wanted]


def _text(authorization: str) -> str:
    """The token in a header's value; empty where there is none."""
    scheme, _, rest = authorization.strip().partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(rest.strip(), validate=True).decode("utf-8").partition(":")[2]
    except (binascii.Error, ValueError):
        return ""


class _About:
    """What the audit log is told of one request."""

    def __init__(self, scope: Scope, door: Door | None, run: str | None) -> None:
        self._scope, self._door, self._run = scope, door, run
        self.token: AccessToken | None = None

    def refused(self, status: int, kind: str) -> None:
        """It was not let through."""
        LOG.warning("refused", status=int(status), problem=kind, **self._fields())

    def told(self, send: Send) -> Send:
        """Sends, and tells what became of a change."""

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                event = "changed" if status < 400 else "refused" if status in (401, 403) else "not changed"
                say = LOG.warning if event == "refused" else LOG.info
                say(event, status=status, **self._fields())
            await send(message)

        return told

    def _fields(self) -> dict[str, Any]:
        door, client = self._door, self._scope.get("client")
        return {
            "action": f"{self._scope['method']} {door.path if door else 'unmatched'}",
            "run": quotable(self._run) if self._run is not None else None,
            "token": self.token.id if self.token is not None else None,
            "client": client[0] if client else None,
            "request_id": self._scope.get(ID_KEY),
        }
