"""The pages people open: frames without data, whose scripts read the API, and the files that they load.

The policy header forbids anything that is not served from here. A query is for the page's script: none is refused. Each
page is data too: its address with `.json` leads to the call that it is made of.
"""

import re
from dataclasses import dataclass
from mimetypes import guess_type
from typing import Final
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.pages import assets
from offpolicy_monitor.pages.render import page
from offpolicy_monitor.server import services
from offpolicy_monitor.server.access.guard import token_of
from offpolicy_monitor.server.http.queries import CHECKED
from offpolicy_monitor.vocabulary import RUN_NAME

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
#: Of a file whose address names what it holds.
FOR_GOOD: Final = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}

#: What a part of a path is, by its name; a step has 64 bits.
PARTS: Final = {"run": RUN_NAME, "step": r"[0-9]{1,19}"}


def theme_of(request: Request) -> str:
    """The theme that the address asks for, empty for none."""
    return request.query_params.get("theme", "")


@dataclass(frozen=True)
class Page:
    """A page: where it is, the script that draws it (static/pages), and its title.

    `data` is the call that it is made of, `asked` what of the page's own query that call takes.
    """

    path: str
    script: str
    title: str
    data: str
    asked: tuple[str, ...] = ()

    def answer(self, request: Request) -> Response:
        """The frame. A run that is not there yet has pages too, which say so and change once it is."""
        run = request.path_params.get("run", "")
        _check(request)
        values = {"run": run, "here": self.script, "title": self.title.format(run=run)}
        return HTMLResponse(page("live.html", self.path, self.script, theme_of(request), **values), headers=HEADERS)

    def lead(self, request: Request) -> Response:
        """To the call that the page is made of. A run whose own name ends in `.json` has its page there."""
        run = request.path_params.get("run", "")
        if self.path.endswith("{run}") and _is_run(request, f"{run}.json"):
            request.path_params["run"] = f"{run}.json"
            return self.answer(request)
        _check(request)
        kept = urlencode([(name, value) for name, value in request.query_params.multi_items() if name in self.asked])
        target = "../" * (self.path.count("/") - 1) + self.data.format(**request.path_params)
        return RedirectResponse(f"{target}?{kept}" if kept else target, status_code=307)


def _check(request: Request) -> None:
    """Refusal 404 where what stands in the path cannot be a run's name, or a step."""
    for name, text in request.path_params.items():
        if not re.fullmatch(PARTS[name], text):
            raise Refusal(404, "unknown-path", "there is no such page")


def _is_run(request: Request, name: str) -> bool:
    token = token_of(request)
    if token is not None and not token.sees(name):
        return False
    try:
        services.of(request).store.view_run(name)
    except Refusal:
        return False
    return True


_RUN: Final = "v1/runs/{run}"
PAGES: Final = (
    Page("/", "runs", "Runs", "v1/runs", ("q",)),
    Page("/alerts", "alerts", "Alerts", "v1/alerts", ("run", "state")),
    Page("/compare", "compare", "Compare", "v1/runs"),
    Page("/runs/{run}", "run", "{run}", _RUN),
    Page("/runs/{run}/steps/{step}", "step", "Step of {run}", _RUN + "/steps/{step}", ("minibatch",)),
    Page("/runs/{run}/what-if", "whatif", "What-if: {run}", _RUN + "/recommendations"),
    Page("/runs/{run}/worst", "worst", "Worst sequences: {run}", _RUN + "/worst", ("step", "from", "to", "gap")),
    Page("/runs/{run}/diagnosis", "diagnosis", "Diagnosis: {run}", _RUN + "/diagnosis", ("from", "to")),
)

router = APIRouter(include_in_schema=False)
for each in PAGES:
    router.add_api_route(f"{each.path}.json", each.lead, response_class=JSONResponse)
    router.add_api_route(each.path, each.answer, response_class=HTMLResponse)


@router.get("/docs")
def docs(request: Request) -> HTMLResponse:
    """The API as Swagger UI, whose icons are data in its styles."""
    policy = HEADERS["Content-Security-Policy"] + "; img-src 'self' data:"
    shown = page("docs.html", "/docs", "docs", theme_of(request), here="docs")
    return HTMLResponse(shown, headers=HEADERS | {"Content-Security-Policy": policy})


@router.get("/openapi.json", dependencies=CHECKED)
def openapi_document(request: Request) -> Response:
    """The document that /docs shows, for tools."""
    return Response(request.app.openapi_text(), media_type="application/json")


@router.get("/static/{version}/{name:path}")
async def static(version: str, name: str) -> Response:
    """A file of the pages, as this version of the service has it. Names are looked up, never joined to a path."""
    if version != assets.VERSION or name not in assets.NAMES:
        raise Refusal(404, "unknown-path", "there is no such file; load the page again")
    media_type = guess_type(name)[0] or "application/octet-stream"
    return Response(assets.content(name), media_type=media_type, headers=FOR_GOOD)
