"""`/runbook`: docs/runbook.md as a page, each alert's name an anchor, so that `/runbook#MismatchKL` leads there.

Knows Markdown and where the document travels; not which alerts there are. Other documents do not travel: where one is
mentioned its name stays, and the contract's link leads to the API docs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from offpolicy_monitor import resources
from offpolicy_monitor.pages.render import page
from offpolicy_monitor.server.routes.pages import HEADERS, theme_of

DOCUMENT: Final = "docs/runbook.md"
#: What stands for a document that is no page of the service.
SERVED: Final = {"protocol.md": "docs"}

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Runbook:
    """The document as HTML, and its sections' names in order."""

    html: Markup
    sections: tuple[str, ...]


@router.get("/runbook")
def runbook(request: Request) -> HTMLResponse:
    """What each alert means and what to do."""
    values = {"here": "runbook", "runbook": of_installation()}
    return HTMLResponse(page("runbook.html", "/runbook", "runbook", theme_of(request), **values), headers=HEADERS)


@cache
def of_installation() -> Runbook:
    """The runbook that came with this installation, rendered once."""
    return render(resources.path(DOCUMENT).read_text())


def render(text: str) -> Runbook:
    """Markdown as HTML; HTML in it is shown, not obeyed."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(text)
    sections = tuple(_anchored(tokens))
    for token in tokens:
        token.children = list(_links(token.children)) if token.children else token.children
    return Runbook(Markup(markdown.renderer.render(tokens, markdown.options, {})), sections)


def _anchored(tokens: list[Token]) -> Iterator[str]:
    """Give every heading its anchor; answers the names of the second-level ones."""
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", anchor(inline.content))
            opening.attrSet("tabindex", "-1")  # a fragment's target has the focus, so that keys scroll from there
            if opening.tag == "h2":
                yield inline.content


def anchor(heading: str) -> str:
    """A heading of one word is its own anchor, letter by letter; of several, they are joined as Markdown viewers do."""
    return heading if " " not in heading else heading.lower().replace(" ", "-")


def _links(children: list[Token]) -> Iterator[Token]:
    """Links to documents lead to the page that stands for them, or are no links any more."""
    kept = True
    for token in children:
        if token.type == "link_open":
            target = str(token.attrGet("href"))
            kept = target.startswith("#") or target in SERVED
            token.attrSet("href", SERVED.get(target, target))
        if kept or token.type not in ("link_open", "link_close"):
            yield token
