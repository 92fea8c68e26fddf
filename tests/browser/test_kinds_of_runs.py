"""Runs at their ends: one that is over, one whose numbers are wrong, one with every label that may be sent."""

import math
import re
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.fixtures import planted as runs
from tests.fixtures.chromium import Open, opened
from tests.fixtures.live import Service
from tests.fixtures.planted import ask

BROKEN = runs.Planted("broken", steps=14, noise=lambda step: 0.01 if step < 8 else math.nan)
#: As many labels as a batch may have, each as long as it may be.
LABELLED = runs.Planted(
    "labelled", steps=3, labels={f"{index}-{'k' * 62}": f"{index}-{'v' * 62}" for index in range(8)}
)
WIDTHS = (1280, 390)


@pytest.fixture(scope="module")
def ends(planted: Service) -> Service:
    """The planted service with these runs too."""
    runs.plant(planted.url, [BROKEN, LABELLED])
    return planted


def test_a_run_that_is_over_says_so_and_keeps_its_last_step(show: Open) -> None:
    with show("/runs/over") as page:
        expect(page.locator(".verdict .state")).to_have_text("Finished")
        expect(page.locator(".at").first).to_contain_text("step 7")
    with show("/") as page:
        expect(page.locator("tbody tr").filter(has_text="over")).to_contain_text("Finished")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("part", ["", "/steps/10", "/what-if", "/worst", "/diagnosis"])
def test_log_probs_that_are_no_numbers_are_told_as_wrong_data(
    chromium: Browser, ends: Service, part: str, width: int
) -> None:
    context: dict[str, Any] = {"viewport": {"width": width, "height": 844}}
    with opened(chromium, f"{ends.url}/runs/broken{part}", **context) as page:
        if not part:
            said = ask(ends.url, "/v1/runs/broken/verdict")
            assert said["half"] == "data"
            expect(page.locator(".verdict .state")).to_have_text("Data wrong")
            expect(page.get_by_role("heading", level=1)).to_have_text(said["head"])
        page.wait_for_timeout(300)
        figures = page.locator("main dd, main td, main .outcome").all_inner_texts()
        assert [text for text in figures if re.search("NaN|undefined|null", text)] == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("path", ["/", "/runs/labelled"])
def test_many_long_labels_are_shown_and_nothing_is_wider_than_the_page(
    chromium: Browser, ends: Service, path: str, width: int
) -> None:
    context: dict[str, Any] = {"viewport": {"width": width, "height": 844}}
    with opened(chromium, ends.url + path, **context) as page:
        for value in LABELLED.labels.values():
            expect(page.get_by_text(value).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
