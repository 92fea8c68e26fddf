"""Behind a proxy that serves the service below a path of its own: pages, styles, calls, links and events."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.proxy import below
from tests.fixtures import planted as runs
from tests.fixtures.chromium import opened
from tests.fixtures.live import Service

PREFIX = "/team/monitor/"
#: Of each depth below the prefix one, and what loads most.
PAGES = ("", "docs", "runs/drifting", "runs/drifting/steps/40")


@pytest.fixture(scope="module")
def proxied(planted: Service) -> Iterator[str]:
    """Where the planted service is for people who come through the proxy."""
    with below(PREFIX, planted.port) as url:
        yield url


@pytest.mark.parametrize("path", PAGES)
def test_a_page_draws_and_loads_nothing_from_beside_the_prefix(chromium: Browser, proxied: str, path: str) -> None:
    with opened(chromium, proxied + path) as page:
        loaded = page.evaluate("performance.getEntriesByType('resource').map((one) => one.name)")
        assert loaded and all(name.startswith(proxied) for name in loaded)
        links = page.evaluate("[...document.querySelectorAll('a[href]')].map((one) => one.href)")
        assert all(link.startswith(proxied) or not link.startswith("http://127.0.0.1") for link in links)


def test_links_lead_from_the_list_to_a_run_to_its_step_and_back(chromium: Browser, proxied: str) -> None:
    with opened(chromium, proxied) as page:
        page.get_by_role("link", name="drifting", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Drifting since step 32")
        page.get_by_role("link", name="What each correction would mask").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("What would each threshold")
        page.get_by_role("link", name="offpolicy-monitor").first.click()
        expect(page).to_have_url(proxied)
        expect(page.locator(".runname").first).to_be_visible()


def test_events_reach_a_page_through_the_proxy(chromium: Browser, proxied: str, planted: Service) -> None:
    live = runs.Planted("live-behind", steps=3)
    runs.plant(planted.url, [live])
    with opened(chromium, f"{proxied}runs/live-behind") as page:
        expect(page.locator(".at").first).to_contain_text("step 2")
        runs.post(planted.url, "live-behind", 3, live)
        expect(page.locator(".at").first).to_contain_text("step 3")
