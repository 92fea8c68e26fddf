"""The pages people open: frames without data, whose scripts read the API, and the files that they load.

The policy header forbids anything that is not served from here. A query is for the page's script: none is refused.
"""

import re
from dataclasses import dataclass
from mimetypes import guess_type
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.pages import assets
from offpolicy_monitor.pages.render import page
from offpolicy_monitor.vocabulary import RUN_NAME

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
#: Of a file whose address names what it holds.
FOR_GOOD: Final = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}


@dataclass(frozen=True)
class Page:
    """A page: where it is, the script that draws it (static/pages), and its title."""

    path: str
    script: str
    title: str

    def answer(self, request: Request) -> Response:
        """The frame. A run that is not there yet has pages too, which say so and change once it is."""
        run = request.path_params.get("run", "")
        if run and not re.fullmatch(RUN_NAME, run):
            raise Refusal(404, "unknown-path", "there is no such page")
        values = {"run": run, "here": self.script, "title": self.title.format(run=run)}
        return HTMLResponse(page("live.html", self.path, self.script, **values), headers=HEADERS)


PAGES: Final = (
    Page("/", "runs", "Runs"),
    Page("/alerts", "alerts", "Alerts"),
    Page("/compare", "compare", "Compare"),
    Page("/runs/{run}", "run", "{run}"),
    Page("/runs/{run}/steps/{step:int}", "step", "Step of {run}"),
    Page("/runs/{run}/what-if", "whatif", "What-if: {run}"),
    Page("/runs/{run}/worst", "worst", "Worst sequences: {run}"),
    Page("/runs/{run}/diagnosis", "diagnosis", "Diagnosis: {run}"),
)

router = APIRouter(include_in_schema=False)
for each in PAGES:
    router.add_api_route(each.path, each.answer, response_class=HTMLResponse)


@router.get("/docs")
def docs() -> HTMLResponse:
    """The API as Swagger UI, whose icons are data in its styles."""
    policy = HEADERS["Content-Security-Policy"] + "; img-src 'self' data:"
    return HTMLResponse(
        page("docs.html", "/docs", "docs", here="docs"), headers=HEADERS | {"Content-Security-Policy": policy}
    )


@router.get("/openapi.json")
def openapi_document(request: Request) -> JSONResponse:
    """The document that /docs shows, for tools."""
    return JSONResponse(request.app.openapi())


@router.get("/static/{version}/{name:path}")
async def static(version: str, name: str) -> Response:
    """A file of the pages, as this version of the service has it. Names are looked up, never joined to a path."""
    if version != assets.VERSION or name not in assets.FILES:
        raise Refusal(404, "unknown-path", "there is no such file; load the page again")
    media_type = guess_type(name)[0] or "application/octet-stream"
    return Response(assets.content(name), media_type=media_type, headers=FOR_GOOD)
