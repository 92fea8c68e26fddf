"""Refuses query parameters that a route does not know: a misspelt filter must not silently select everything."""

from fastapi import Request
from fastapi.routing import APIRoute

from offpolicy_monitor.errors import MAX_ERRORS, FieldError, Refusal, quotable


async def refuse_unknown_parameters(request: Request) -> None:
    """Refusal 422 naming each query parameter that the matched route of the API does not declare."""
    route = request.scope.get("route")
    if not request.url.query or not getattr(route, "include_in_schema", True):
        return
    known = _declared(route)
    unknown = [quotable(name) for name in sorted(set(request.query_params) - known)[:MAX_ERRORS]]
    if unknown:
        message = f"is not a query parameter here; known: {', '.join(sorted(known)) or 'none'}"
        errors = [FieldError(name, message) for name in unknown]
        raise Refusal(422, "unknown-parameter", f"{', '.join(unknown)}: {message}", errors)


def _declared(route: object) -> set[str]:
    if not isinstance(route, APIRoute):
        return set()
    return {field.alias for field in route.dependant.query_params}
