"""A real Chromium on a real service with planted runs; every page that is opened must leave its console empty."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.browser.planted import plant
from tests.fixtures.live import Service, serving
from tests.fixtures.tools import require_tool

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]
#: Milliseconds that a page may take for anything, on a machine that other tests use.
PATIENCE = 30_000
Open = Callable[..., Any]


# Of a module: while Playwright runs, so does an event loop in this process, which other tests have of their own.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser, or the test is skipped saying what to install; with CI=true it fails."""
    program = require_tool("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with every planted run, which keeps columns of the worst sequences."""
    with serving(tmp_path_factory.mktemp("pages"), OFFPOLICY_KEEP_WORST="3") as service:
        plant(service.url)
        yield service


@contextmanager
def opened(browser: Browser, url: str, expected: str = "$^", **context: Any) -> Iterator[Page]:
    """A page at an address, once its script has drawn; at the end nothing may be on its console.

    `expected`: what may be there all the same, as a regular expression.
    """
    said: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            said.append(f"{message.type}: {message.text} {message.location.get('url', '')}")

    with browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context}) as held:
        page = held.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", hear)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(url)
        page.wait_for_selector("#page > *, .prose, #swagger .info")
        yield page
    assert [text for text in said if not re.search(expected, text)] == []


@pytest.fixture
def show(chromium: Browser, planted: Service) -> Open:
    """Open a page of the planted service by its path."""
    return lambda path, **context: opened(chromium, planted.url + path, **context)


def png(page: Page, folder: Path, name: str) -> Path:
    """A screenshot, to be looked at."""
    path = folder / f"{name}.png"
    page.screenshot(path=path, full_page=True)
    return path
