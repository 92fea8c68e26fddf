"""The API page: its examples are tried from the browser as they stand, and the service takes them."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.fixtures.chromium import opened
from tests.fixtures.live import Service

SUCCESS = re.compile(r"^2\d\d$")


@pytest.fixture(scope="module")
def docs(chromium: Browser, planted: Service) -> Iterator[Page]:
    """The page, which takes seconds to draw; each test opens another call of it."""
    with opened(chromium, f"{planted.url}/docs") as page:
        yield page


def operation(page: Page, operation_id: str) -> Locator:
    """A call of the document, opened, with what one can fill in."""
    block = page.locator(f"[id$='{operation_id}'].opblock")
    block.locator(".opblock-summary-control").click()
    block.get_by_role("button", name="Try it out").click()
    return block


def run(block: Locator) -> None:
    """Send it; the service answers 2xx."""
    block.get_by_role("button", name="Execute").click()
    expect(block.locator(".live-responses-table tbody .response-col_status").first).to_have_text(SUCCESS)


@pytest.mark.parametrize("path", ["/v1/runs/{run}/batches", "/v1/evaluate"])
def test_the_example_of_a_post_runs_from_the_browser(docs: Page, path: str) -> None:
    block = operation(docs, operation_id(docs, "post", path))
    if "{run}" in path:
        block.get_by_placeholder("run").fill("from-the-browser")
    run(block)


def test_a_get_runs_from_the_browser_and_shows_what_the_service_answers(docs: Page) -> None:
    block = operation(docs, operation_id(docs, "get", "/v1/runs/{run}"))
    block.get_by_placeholder("run").fill("drifting")
    run(block)
    expect(block.locator(".live-responses-table")).to_contain_text('"run": "drifting"')


def operation_id(page: Page, method: str, path: str) -> str:
    found: str = page.evaluate(
        "([method, path]) => fetch('openapi.json').then((answer) => answer.json())"
        ".then((document) => document.paths[path][method].operationId)",
        [method, path],
    )
    return found
