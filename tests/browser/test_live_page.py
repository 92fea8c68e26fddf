"""A page that stays open: it follows its run without being loaded again, also over a restart of the service."""

import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.fixtures import planted as runs
from tests.fixtures.application import database
from tests.fixtures.chromium import opened
from tests.fixtures.service import COMMAND, DEFAULTS, free_port, served, wait_until_ready

LIVE = runs.Planted("live", steps=6)
#: What a browser says of a service that is away, and nothing else.
AWAY = r"net::ERR_(CONNECTION_REFUSED|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE|CONNECTION_RESET)"


@contextmanager
def on(port: int, folder: Path) -> Iterator[str]:
    """The URL of a service that has this port and the database of this folder."""
    settings = DEFAULTS | {"OFFPOLICY_DATABASE_URL": database(folder), "OFFPOLICY_DEVICE": "cpu"}
    with served([*COMMAND, "serve", "--port"], folder / "service.log", settings, port) as running:
        wait_until_ready(running.url, running.process)
        yield running.url


def marked(page: Page) -> None:
    """Leave a mark that a page which is loaded anew has lost."""
    page.evaluate("window.wasHere = true")


def test_a_page_follows_its_run_says_that_the_service_is_away_and_goes_on_by_itself(
    chromium: Browser, tmp_path: Path
) -> None:
    port = free_port()
    with ExitStack() as open_page:
        with on(port, tmp_path) as url:
            runs.plant(url, [LIVE])
            page = open_page.enter_context(opened(chromium, f"{url}/runs/live", expected=AWAY))
            at = page.locator(".at").first
            expect(at).to_contain_text("step 5")
            marked(page)
            runs.post(url, "live", 6, LIVE)
            expect(at).to_contain_text("step 6")
            expect(page.get_by_role("heading", level=1)).to_have_text(runs.ask(url, "/v1/runs/live/verdict")["head"])
        expect(page.get_by_text("This page goes on by itself")).to_be_visible()
        expect(at).to_contain_text("step 6")
        with on(port, tmp_path) as url:
            runs.post(url, "live", 7, LIVE)
            expect(at).to_contain_text("step 7")
            expect(page.get_by_text("This page goes on by itself")).to_be_hidden()
            assert page.evaluate("window.wasHere") is True


def test_the_curl_line_of_an_empty_list_posts_as_it_stands_and_the_run_appears(
    chromium: Browser, tmp_path: Path
) -> None:
    with on(free_port(), tmp_path) as url, opened(chromium, f"{url}/") as page:
        program, *options = shlex.split(page.locator("#curl").inner_text())
        assert program == "curl" and options[:2] == ["-X", "POST"]
        _, _, address, _, header, _, body = options
        runs.ask("", address, body.encode(), header.partition(": ")[2])
        expect(page.get_by_role("link", name="my-run", exact=True)).to_be_visible()


def test_a_list_shows_a_run_that_begins_and_one_that_ends(chromium: Browser, tmp_path: Path) -> None:
    with on(free_port(), tmp_path) as url, opened(chromium, f"{url}/") as page:
        expect(page.get_by_text("No trainer has posted yet")).to_be_visible()
        marked(page)
        runs.plant(url, [runs.Planted("new", steps=3)])
        expect(page.get_by_role("link", name="new", exact=True)).to_be_visible()
        runs.ask(url, "/v1/runs/new", b'{"finished": true}', "application/json", "PATCH")
        expect(page.get_by_role("row").filter(has_text="new")).to_contain_text("Finished")
        assert page.evaluate("window.wasHere") is True
