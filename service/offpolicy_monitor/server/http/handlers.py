"""Exception handlers: every way a request can fail becomes one problem document.

Refusals carry their own status; the framework's validation errors and the router's 404 and 405 are translated. What is
left is a defect: the middleware logs its traceback and answers 500.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Match

from offpolicy_monitor.errors import MAX_ERRORS, FieldError, Problem, quotable
from offpolicy_monitor.server.http.problems import SCOPE_KEY, ProblemResponse, refusal_of

ROUTER_KINDS = {404: "unknown-path", 405: "method-not-allowed"}
#: Parts of a request that a parameter is in.
PARTS = ("query", "path", "header", "body")
JSON_TYPES = {"model_attributes_type": "is not a JSON object", "json_invalid": "is not valid JSON"}


def install(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Register the handlers; `routes` are what a 405 looks up the allowed methods in."""
    app.state.api_routes = [route for route in routes if isinstance(route, APIRoute)]
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _router)


def _answer(request: Request, response: ProblemResponse) -> Response:
    """Leave the document where the middleware finds it: it counts and logs refusals."""
    request.scope[SCOPE_KEY] = response
    return response


async def _problem(request: Request, error: Exception) -> Response:
    return refusal_of(request.scope, cast(Problem, error))


async def _validation(request: Request, error: Exception) -> Response:
    found = cast(RequestValidationError, error).errors()
    errors = [FieldError(quotable(_field(item)), _message(item)) for item in found[:MAX_ERRORS]]
    status = 400 if any(item["type"] == "json_invalid" for item in found) else 422
    detail = "; ".join(f"{error.field}: {error.message}" for error in errors)
    return _answer(request, ProblemResponse(status, "not-parseable" if status == 400 else "invalid", detail, errors))


async def _router(request: Request, error: Exception) -> Response:
    error = cast(HTTPException, error)
    status = HTTPStatus(error.status_code)
    kind = ROUTER_KINDS.get(status, status.phrase.lower().replace(" ", "-"))
    headers = dict(error.headers or {})
    detail = str(error.detail)
    if status == 404:
        detail = "there is nothing at this path; see /docs"
    if status == 405:
        headers["Allow"] = ", ".join(_allowed(request))
        detail = f"{request.method} is not allowed here; allowed: {headers['Allow']}"
    return _answer(request, ProblemResponse(status, kind, detail, headers=headers))


def _allowed(request: Request) -> list[str]:
    """The methods of every route at this path: the router itself names those of the first alone."""
    routes: Sequence[APIRoute] = request.app.state.api_routes
    matching = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    methods = {method for route in matching for method in route.methods or ()}
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)


def _field(item: dict[str, Any]) -> str:
    """The parameter at fault, by its name on the wire: `("query", "limit")` -> `limit`."""
    location = [
        part for part in item["loc"] if isinstance(part, str) and part not in ("query", "path", "header", "body")
    ]
    return ".".join(location) or "body"


def _message(item: dict[str, Any]) -> str:
    return JSON_TYPES.get(item["type"], str(item["msg"]))
