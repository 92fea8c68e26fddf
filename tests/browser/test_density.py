"""The Step page draws where tokens stand in engine and trainer at once, says it in words, and why it cannot."""

import json
import re
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.client.reduce import reduced
from offpolicy_monitor.summary import from_bytes
from offpolicy_monitor.wire import frame
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.browser.test_keyboard import tab_to
from tests.fixtures import planted as runs
from tests.fixtures.chromium import Open, opened
from tests.fixtures.forged import of_version_3
from tests.fixtures.live import Service
from tests.fixtures.planted import ask

WITHOUT_MU = runs.Planted("without-mu", steps=1, without=("sampling_logprobs",))
COPIED = runs.Planted("copied", steps=1, noise=lambda step: 0.0)
OLDER = "older-client"


@pytest.fixture(scope="module")
def more(planted: Service) -> Service:
    """The planted service with runs without mu, of copied log-probs, and of an older client that reduced its shard."""
    runs.plant(planted.url, [WITHOUT_MU, COPIED])
    summary = from_bytes(reduced({"step": 0}, runs.step_arrays(runs.HEALTHY, 0))["summary"].tobytes())
    stored = np.frombuffer(of_version_3(summary), np.uint8)
    body = b"".join(bytes(part) for part in frame.encode({"step": 0}, {"summary": stored}))
    ask(planted.url, f"/v1/runs/{OLDER}/batches", body, "application/vnd.safetensors")
    return planted


def plot(page: Page) -> Locator:
    return page.locator(".density svg")


def found(service: Service, run: str, step: int, gap: str) -> dict[str, Any]:
    answer: dict[str, Any] = ask(service.url, f"/v1/runs/{run}/steps/{step}/histograms")["densities"][gap]
    return answer


def test_every_cell_that_holds_tokens_is_drawn_and_the_fullest_is_read_on_focus(show: Open, planted: Service) -> None:
    cells = found(planted, "drifting", 40, "mismatch")
    with show("/runs/drifting/steps/40") as page:
        expect(page.locator(".density svg rect[class^=shade]")).to_have_count(len(cells["count"]))
        tab_to(page, ".density svg")
        expect(page.locator(".read")).to_have_text(re.compile(rf"^μ .+, π_old .+: {max(cells['count'])} tokens, \d"))


def test_a_density_says_in_words_how_far_the_two_agree(show: Open, planted: Service) -> None:
    cells = found(planted, "drifting", 40, "mismatch")
    apart = np.array(cells["numerator"]) - np.array(cells["denominator"])
    whole = sum(cells["count"])
    sides = [
        round(100 * np.array(cells["count"])[chosen].sum() / whole) for chosen in (apart == 0, apart > 0, apart < 0)
    ]
    gap = ask(planted.url, "/v1/runs/drifting/steps/40")["gaps"]["mismatch"]
    with show("/runs/drifting/steps/40") as page:
        said = plot(page).get_attribute("aria-label") or ""
    assert f"{round(100 * (1 - gap['tail_fraction']))}% of the tokens have probabilities within a factor of 2" in said
    assert "{}% lie in cells on the diagonal, {}% above it (π_old > μ), {}% below".format(*sides) in said
    assert re.search(r"\d% lie far from it, .+ most of them (above|below) it with μ ", said)


def test_log_probs_that_are_copied_lie_on_the_diagonal(chromium: Browser, more: Service) -> None:
    with opened(chromium, f"{more.url}/runs/copied/steps/0") as page:
        expect(plot(page)).to_have_attribute(
            "aria-label",
            re.compile(r": 100% of .+ 100% lie in cells on the diagonal, .+ None of them lie far from it\.$"),
        )


def test_arrows_read_other_cells_and_stay_on_the_step(show: Open) -> None:
    with show("/runs/drifting/steps/40") as page:
        plot(page).focus()
        first = page.locator(".read").inner_text()
        for key in ("ArrowLeft", "ArrowUp"):
            page.keyboard.press(key)
        expect(page.locator(".read")).not_to_have_text(first)
        expect(page.get_by_role("heading", level=1)).to_have_text("Step 40")
        for _ in range(40):
            page.keyboard.press("ArrowDown")
        expect(page.locator(".read")).to_contain_text("π_old below")


def test_a_link_keeps_the_gap_that_was_chosen(show: Open) -> None:
    with show("/runs/healthy/steps/40") as page:
        page.get_by_label("Engine against").select_option("total")
        expect(page).to_have_url(re.compile("gap=total"))
        expect(plot(page)).to_have_attribute("aria-label", re.compile(r"^Tokens by μ and π: "))
        expect(page.get_by_label("Engine against")).to_be_focused()
    with show("/runs/healthy/steps/40?gap=total") as page:
        expect(page.get_by_label("Engine against")).to_have_value("total")
        expect(plot(page)).to_have_attribute("aria-label", re.compile(r"^Tokens by μ and π: "))


def test_without_pi_old_the_current_policy_is_drawn_and_nothing_is_chosen(show: Open) -> None:
    with show("/runs/without-pi-old/steps/40") as page:
        expect(plot(page)).to_have_attribute("aria-label", re.compile(r"^Tokens by μ and π: "))
        expect(page.get_by_label("Engine against")).to_have_count(0)


@pytest.mark.parametrize(
    ("run", "reason"), [("without-mu", "send sampling_logprobs too"), (OLDER, "a release that did not count this")]
)
def test_a_step_that_has_none_says_why(chromium: Browser, more: Service, run: str, reason: str) -> None:
    with opened(chromium, f"{more.url}/runs/{run}/steps/0") as page:
        expect(page.get_by_text(reason)).to_be_visible()
        expect(plot(page)).to_have_count(0)


def test_an_old_step_whose_histograms_are_gone_still_shows_its_figures(chromium: Browser, planted: Service) -> None:
    def gone(route: Route) -> None:
        route.fulfill(status=410, content_type="application/problem+json", body=json.dumps({"detail": "gone"}))

    with opened(chromium, f"{planted.url}/runs/healthy/steps/3", expected="410") as page:
        page.route("**/histograms*", gone)
        page.reload()
        expect(page.get_by_text("The histograms of this step are gone")).to_be_visible()
        expect(page.get_by_role("heading", name="The gaps in figures")).to_be_visible()
