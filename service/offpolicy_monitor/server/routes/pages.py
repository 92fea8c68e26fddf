"""The pages people open: `/` with the runs, `/docs` with the API. Server-rendered, nothing from outside, no scripts.

Every name is escaped by the template engine; the policy header forbids anything that is not served from here.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from offpolicy_monitor._version import __version__
from offpolicy_monitor.errors import Refusal, Unavailable
from offpolicy_monitor.figures import at
from offpolicy_monitor.server import openapi, services
from offpolicy_monitor.server.http.problems import SCOPE_KEY, response_to
from offpolicy_monitor.server.http.threads import asks_the_store

HERE = Path(__file__).parents[1]
STATIC = {file.name: file for file in sorted((HERE / "static").iterdir())}
SHOWN_RUNS = 100
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
FIGURES = {
    "mismatch_k3": "gaps.mismatch.k3",
    "staleness_k3": "gaps.staleness.k3",
    "ess": "gaps.total.ess",
}

router = APIRouter(include_in_schema=False)
templates = Environment(
    loader=FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@router.get("/")
@asks_the_store
def runs(request: Request) -> HTMLResponse:
    """The runs, newest first, with the figures of their last step that counts."""
    store = services.of(request).store
    try:
        page = store.runs(SHOWN_RUNS, None)
        figures = {row.run: row.figures for row in store.exported(SHOWN_RUNS, 0.0)}
    except Unavailable as error:
        return _away(request, error)
    rows = [_row(row, figures.get(row["run"], {})) for row in page.rows]
    return _page("runs.html", runs=rows, more=page.next_cursor is not None, curl=_curl(request))


@router.get("/docs")
def docs(request: Request) -> HTMLResponse:
    """The OpenAPI document as a page."""
    document = request.app.openapi()
    return _page(
        "docs.html", description=document["info"]["description"], operations=_operations(document), curl=_curl(request)
    )


@router.get("/openapi.json")
def openapi_document(request: Request) -> JSONResponse:
    """The document that /docs shows, for tools."""
    return JSONResponse(request.app.openapi())


@router.get("/static/{name}")
def static(name: str) -> FileResponse:
    """A file of the pages. Names are looked up, never joined to a path."""
    if name not in STATIC:
        raise Refusal(404, "unknown-path", "there is no such file")
    return FileResponse(STATIC[name], headers={"Cache-Control": "max-age=3600", "X-Content-Type-Options": "nosniff"})


def _away(request: Request, error: Unavailable) -> HTMLResponse:
    """The page instead of the problem document, which stays for the log and the counters."""
    problem = request.scope[SCOPE_KEY] = response_to(error)
    page = _page("away.html", detail=error.detail)
    page.status_code = problem.status_code
    page.headers["Retry-After"] = str(error.retry_after)
    return page


def _page(template: str, **values: Any) -> HTMLResponse:
    return HTMLResponse(templates.get_template(template).render(version=__version__, **values), headers=HEADERS)


def _curl(request: Request) -> str:
    return openapi.curl_line(str(request.base_url).rstrip("/"))


def _row(row: Mapping[str, Any], figures: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, **{name: _figure(figures, path) for name, path in FIGURES.items()}}


def _figure(figures: Mapping[str, Any], path: str) -> str:
    """Three significant digits; a dash where the run has no such figure."""
    value = at(figures, path)
    return "–" if value is None else f"{value:.3g}"


def _operations(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield {
                "id": operation["operationId"],
                "method": method.upper(),
                "path": path,
                "summary": operation.get("summary", ""),
                "description": operation.get("description", ""),
                "parameters": [{"description": "", "required": False, **p} for p in operation.get("parameters", ())],
                "bodies": list(_bodies(operation)),
                "responses": [
                    {"status": status, "description": response["description"]}
                    for status, response in operation["responses"].items()
                ],
            }


def _bodies(operation: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    for media_type, body in operation.get("requestBody", {}).get("content", {}).items():
        for example in body.get("examples", {}).values():
            value = example["value"]
            shown = value if isinstance(value, str) else json.dumps(value, indent=1)
            yield {"media_type": media_type, "note": example.get("summary", ""), "example": shown}
