"""Doors: what each route asks of a token, one row each. A route without its row is found when the application is made.

Data alone: knows no request and no token.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from offpolicy_monitor.access import Scope

#: The runs that an answer is about: the one in the path; those that the token is for, or one of them that the query
#: names; all of them, whatever the token is for; none.
Runs = Literal["named", "listed", "all", "none"]
#: Paths that are answered without a token, so that a machine can look after the service.
OPEN: Final[tuple[Scope, ...]] = ()


@dataclass(frozen=True)
class Door:
    """What a route asks for: one of `scopes`, none of which is open to everybody; `runs`: see above.

    `is_frame`: the answer holds nothing that is stored, such as a page, which its script fills.
    """

    method: str
    path: str
    scopes: tuple[Scope, ...]
    runs: Runs = "none"
    is_frame: bool = False

    @property
    def changes(self) -> bool:
        """Whether who comes through changes what is stored, but by posting batches: each time is told."""
        return self.method in ("PATCH", "DELETE")


def _get(scopes: tuple[Scope, ...], runs: Runs, *paths: str) -> Iterator[Door]:
    return (Door("GET", path, scopes, runs) for path in paths)


def _frames(runs: Runs, *paths: str) -> Iterator[Door]:
    return (Door("GET", path, ("read",), runs, is_frame=True) for path in paths)


_RUN: Final = "/v1/runs/{run}"
_PAGE: Final = "/runs/{run}"
_PARTS: Final = ("", "/steps/{step}", "/what-if", "/worst", "/diagnosis")
_OF_RUN: Final = (
    "verdict", "steps", "steps/{step}", "steps/{step}/histograms", "series", "whatif", "recommendations", "worst",
    "diagnosis", "checks", "rules",
)  # fmt: skip
DOORS: Final[tuple[Door, ...]] = (
    Door("POST", f"{_RUN}/batches", ("ingest",), "named"),
    Door("POST", "/v1/evaluate", ("ingest",)),
    # A trainer asks for its attempt and its method rows, and says what its run is and that it is over: which fields of
    # PATCH that takes is said where they are (routes.changes).
    Door("GET", _RUN, ("read", "ingest"), "named"),
    Door("PATCH", _RUN, ("admin", "ingest"), "named"),
    Door("DELETE", _RUN, ("admin",), "named"),
    *_get(("read",), "named", *(f"{_RUN}/{part}" for part in _OF_RUN)),
    *_get(("read",), "listed", "/v1/runs", "/v1/alerts", "/v1/events"),
    *_frames("none", "/v1/figures", "/docs", "/openapi.json", "/runbook", "/static/{version}/{name:path}"),
    *_frames("none", *(f"{path}{end}" for path in ("/", "/alerts", "/compare") for end in ("", ".json"))),
    *_frames("named", *(f"{_PAGE}{part}{end}" for part in _PARTS for end in ("", ".json"))),
    *_get(("read",), "all", "/metrics"),
    *_get(OPEN, "none", "/healthz", "/readyz"),
)


class Doors:
    """The doors of routes, in their order; with `open_metrics` /metrics is open. KeyError for a route without one."""

    def __init__(self, routes: Sequence[BaseRoute], open_metrics: bool = False) -> None:
        rows = {(door.method, door.path): door for door in DOORS}
        if open_metrics:
            rows["GET", "/metrics"] = Door("GET", "/metrics", OPEN)
        self._found: list[tuple[re.Pattern[str], str, Door, BaseRoute]] = [
            (route.path_regex, method, rows[method, route.path], route)
            for route in routes
            if isinstance(route, APIRoute)
            for method in sorted(route.methods or ())
        ]

    def of(self, method: str, path: str) -> tuple[Door, BaseRoute, Mapping[str, str]] | None:
        """The door that a request comes to, its route, and what its path names; None where there is no route."""
        for pattern, of_route, door, route in self._found:
            if of_route == method and (found := pattern.match(path)) is not None:
                return door, route, found.groupdict()
        return None
