"""Refuses query parameters that a route does not know, or takes but once: a misspelt filter must not silently select
everything, nor the last of two values hide the first."""

from collections.abc import Iterator
from typing import Final, get_args, get_origin

from fastapi import Depends, Request
from fastapi.routing import APIRoute

from offpolicy_monitor.errors import MAX_ERRORS, FieldError, Refusal, quotable


async def refuse_wrong_parameters(request: Request) -> None:
    """Refusal 422 naming each query parameter that the matched route does not declare, or takes but once."""
    route = request.scope.get("route")
    if not request.url.query:
        return
    known = dict(_declared(route))
    names = [name for name, _ in request.query_params.multi_items()]
    _refuse("unknown-parameter", set(names) - set(known), f"is not a query parameter here; known: {_listed(known)}")
    _refuse("repeated-parameter", {n for n in known if not known[n] and names.count(n) > 1}, "is taken once")


def _refuse(kind: str, names: set[str], message: str) -> None:
    wrong = [quotable(name) for name in sorted(names)[:MAX_ERRORS]]
    if wrong:
        raise Refusal(422, kind, f"{', '.join(wrong)}: {message}", [FieldError(name, message) for name in wrong])


def _declared(route: object) -> Iterator[tuple[str, bool]]:
    """Each query parameter, and whether it may be repeated."""
    for field in route.dependant.query_params if isinstance(route, APIRoute) else ():
        annotation = field.field_info.annotation
        yield field.alias, any(get_origin(one) is list for one in (annotation, *get_args(annotation)))


def _listed(names: dict[str, bool]) -> str:
    return ", ".join(sorted(names)) or "none"


#: The dependencies of a router of the API. Pages let an address have whatever their scripts read.
CHECKED: Final = (Depends(refuse_wrong_parameters),)
