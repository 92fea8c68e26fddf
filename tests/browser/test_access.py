"""Pages of a service that asks for tokens: a browser sends one as password, with its streams of events too."""

import time
from pathlib import Path
from urllib.request import Request, urlopen

from offpolicy_monitor.access import made
from offpolicy_monitor.store import access as book
from playwright.sync_api import Browser, expect

from tests.fixtures.application import database, json_bytes
from tests.fixtures.chromium import opened
from tests.fixtures.live import serving


def test_a_browser_that_was_asked_for_a_password_shows_a_run_and_follows_it(
    chromium: Browser, tmp_path: Path, migrated_copy: None
) -> None:
    texts = []
    for scope in ("ingest", "read"):
        token, text = made([scope], "a-*", "", time.time())
        book.enter(database(tmp_path), token)
        texts.append(text)

    with serving(tmp_path) as service:

        def post(step: int) -> None:
            headers = {"Authorization": f"Bearer {texts[0]}", "Content-Type": "application/json"}
            request = Request(f"{service.url}/v1/runs/a-1/batches", json_bytes(step=step), headers)
            with urlopen(request, timeout=30) as answer:
                assert answer.status == 200

        post(1)
        known = {"username": "anybody", "password": texts[1]}
        with opened(chromium, f"{service.url}/runs/a-1", http_credentials=known) as page:
            expect(page.locator(".at").first).to_contain_text("step 1")
            post(2)
            expect(page.locator(".at").first).to_contain_text("step 2")
            page.goto(f"{service.url}/docs")
            expect(page.locator(".opblock").first).to_be_visible()
