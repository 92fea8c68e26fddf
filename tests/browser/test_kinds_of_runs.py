"""Runs at their ends: one that is over, one whose numbers are wrong, one with every label that may be sent."""

import math
import re
from typing import Any

import pytest
from offpolicy_monitor.figures import at
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
#: Of a truncated sampler, some weights behind; every fifth step is rescored, and so is the newest one.
PARTED = runs.Planted(
    "parted", steps=16, noise=lambda step: 0.01 if step < 8 else 0.3, rescored=5, kept=0.95, older=0.3
)
#: Panels of what a mismatch is made of, and their figures in the order that they are read, with the words of each.
MADE_OF = {
    "Where is the mismatch made?": {
        "engine alone": "noise_floor.engine_internal.k3",
        "engine to trainer": "noise_floor.cross_engine.k3",
        "trainer alone": "noise_floor.trainer.k3",
    },
    "Does the mismatch have lag in it?": {
        "older weights": "mismatch_lag.k3",
        "newest weights": "mismatch_lag.k3_current",
        "older tokens": "mismatch_lag.token_fraction",
    },
    "Is the gap what the sampler cut off?": {
        "mismatch": "support.mismatch.k3",
        "as sent": "gaps.mismatch.k3",
        "total": "support.total.k3",
        "mean ratio": "support.mismatch.ratio_mean",
        "mass kept": "support.mismatch.mass_mean",
    },
}
WIDTHS = (1280, 390)


@pytest.fixture(scope="module")
def ends(planted: Service) -> Service:
    """The planted service with these runs too."""
    runs.plant(planted.url, [BROKEN, LABELLED, PARTED])
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


@pytest.mark.parametrize("width", WIDTHS)
def test_what_a_mismatch_is_made_of_is_shown_of_a_run_that_sent_it(
    chromium: Browser, ends: Service, width: int
) -> None:
    context: dict[str, Any] = {"viewport": {"width": width, "height": 844}}
    with opened(chromium, f"{ends.url}/runs/parted", **context) as page:
        step = ask(ends.url, "/v1/runs/parted/steps/15")
        for name, rows in MADE_OF.items():
            panel = page.get_by_role("region", name=name)
            assert panel.locator("dt").all_inner_texts() == list(rows)
            shown = [value_of(text) for text in panel.locator("dd:not(.note)").all_inner_texts()]
            assert shown == [pytest.approx(at(step, path), rel=0.05) for path in rows.values()], name
        if width > 600:
            share = f"{100 * step['noise_floor']['attribution']['engine_internal']:.0f}"
            expect(page.get_by_role("region", name=next(iter(MADE_OF))).locator("dd.note")).to_contain_text(share)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    with opened(chromium, f"{ends.url}/runs/healthy", **context) as page:
        expect(page.get_by_role("region", name="How many tokens still count?")).to_be_visible()
        assert not any(page.get_by_role("region", name=name).count() for name in MADE_OF)


def value_of(text: str) -> float:
    """A number as a page shows it."""
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
