"""/runbook#Name in a browser: the section is what is seen, by people and by a screenshot that no script takes."""

import re
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.fixtures.chromium import FLAGS, PROGRAMS, Open
from tests.fixtures.live import Service
from tests.fixtures.tools import require_tool

#: Bytes of a picture without any text, and more.
BLANK = 20_000


def test_a_section_is_shown_by_its_fragment_and_keys_scroll_on_from_there(show: Open) -> None:
    with show("/runbook#MismatchKL", expected="Autofocus processing was blocked") as page:  # what a fragment is for
        heading = page.locator("#MismatchKL")
        expect(heading).to_be_in_viewport()
        expect(heading).to_be_focused()
        assert len(page.screenshot()) > BLANK
        page.keyboard.press("PageDown")
        expect(heading).not_to_be_in_viewport()


def test_without_a_fragment_keys_scroll_from_the_top(show: Open) -> None:
    with show("/runbook") as page:
        title = page.locator("h1").first
        expect(title).to_be_in_viewport()
        page.keyboard.press("PageDown")
        expect(title).not_to_be_in_viewport()


def test_the_runbook_is_dark_where_the_system_is_and_its_buttons_work(show: Open) -> None:
    blocked = "Autofocus processing was blocked"  # by the fragment, where that is quicker
    with show("/runbook#MismatchKL", expected=blocked, color_scheme="dark") as page:
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        page.get_by_role("button", name="Light or dark").click()
        expect(page.locator("html")).to_have_attribute("data-theme", "light")
        page.get_by_role("button", name="Keys").click()
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        expect(page).to_have_url(re.compile(r"/runbook\?theme=light#MismatchKL$"))


@pytest.mark.parametrize(("path", "system"), [("/runbook", "dark"), ("/runbook?theme=dark", "light")])
def test_a_page_is_dark_where_no_script_runs(show: Open, path: str, system: str) -> None:
    with show(path, color_scheme=system, java_script_enabled=False) as page:
        style = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(style) == "rgb(15, 17, 19)"
        assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


def test_a_section_is_on_a_screenshot_that_is_taken_without_a_script(planted: Service, tmp_path: Path) -> None:
    shown = {}
    for fragment in ("", "#MismatchKL"):
        picture = tmp_path / "shown.png"
        flags = ["--headless", *FLAGS, f"--screenshot={picture}", "--window-size=1280,900"]
        command = [str(require_tool(*PROGRAMS)), *flags, f"{planted.url}/runbook{fragment}"]
        subprocess.run(command, check=True, timeout=120, capture_output=True)
        shown[fragment] = picture.read_bytes()
    assert min(map(len, shown.values())) > BLANK
    assert shown["#MismatchKL"] != shown[""]
