"""A service with 200 runs, fifty of them of 2,000 steps and one of 10,000: shown worst first, at once, and filtered."""

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import planted as runs
from tests.browser.conftest import opened
from tests.browser.grown import Copy, grow
from tests.browser.planted import ask, plant
from tests.fixtures.live import Service, serving

#: The runs that are posted, of which the others are copies.
WELL, BAD = runs.Planted("well", steps=48), runs.Planted("bad", steps=48, noise=runs.DRIFTING.noise)
RUNS: Final = 200
LONG: Final = [Copy(f"long-{index:02}", "well", 2000) for index in range(50)]
CRITICAL: Final = [Copy(f"critical-{index}", "bad", 48) for index in range(5)]
GONE: Final = Copy("gone", "well", 48, ago=86_400)
HUGE: Final = Copy("huge", "bad", 10_000)
SMALL: Final = [Copy(f"small-{index:03}", "well", 12) for index in range(RUNS - 2 - len(LONG) - len(CRITICAL) - 2)]
#: What the pages take on an idle machine is below a second, and a redraw below 50 ms; tests share theirs.
BUSY: Final = 4
#: Of each zoom by mouse and each way back by key: milliseconds until every plot of the page is drawn.
TIMED: Final = """() => {
    window.took = [];
    for (const event of ["mouseup", "keydown"]) addEventListener(event, () => {
        const begin = performance.now();
        setTimeout(() => window.took.push(performance.now() - begin));
    }, { capture: true });
}"""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service with all of them."""
    folder = tmp_path_factory.mktemp("many")
    with serving(folder) as first:
        plant(first.url, [WELL, BAD])
    grow(folder / "offpolicy.db", [*LONG, *CRITICAL, GONE, HUGE, *SMALL])
    with serving(folder) as service:
        ask(service.url, "/v1/runs?order=worst&limit=200")
        yield service


def names(page: Page) -> list[str]:
    return page.locator(".runname").all_inner_texts()


def test_two_hundred_runs_are_listed_worst_first_and_a_silent_one_right_after_the_critical_ones(
    chromium: Browser, many: Service
) -> None:
    with opened(chromium, many.url + "/") as page:
        expect(page.locator(".runname")).to_have_count(RUNS)
        shown = names(page)
        worst = {copy.name for copy in CRITICAL} | {"bad", "huge"}
        assert set(shown[: len(worst)]) == worst
        assert shown[len(worst)] == "gone"
        expect(page.locator("tbody tr").nth(len(worst))).to_contain_text("Silent")
        expect(page.get_by_role("status").first).to_contain_text(f"{RUNS} runs: {len(worst)} critical")
        assert shown == [run["run"] for run in ask(many.url, "/v1/runs?order=worst&limit=200")["runs"]]


def test_a_regular_expression_filters_them_and_stays_in_the_address(chromium: Browser, many: Service) -> None:
    with opened(chromium, many.url + "/") as page:
        page.keyboard.press("/")
        page.keyboard.type("^(long-0|critical)")
        expect(page.locator(".runname")).to_have_count(15)
        assert all(re.match("long-0|critical", name) for name in names(page))
        expect(page).to_have_url(re.compile(r"q="))
        address = page.url
        page.get_by_label("Filter").fill("nothing-like-this")
        expect(page.get_by_text("No run matches.")).to_be_visible()
    with opened(chromium, address) as page:
        expect(page.locator(".runname")).to_have_count(15)


def test_the_list_of_long_runs_is_painted_and_drawn_within_a_second(
    chromium: Browser, many: Service, record_property: Any
) -> None:
    figures = []
    for query in ("/?q=^long", "/"):
        with opened(chromium, many.url + query) as page:
            page.locator(".runname").first.wait_for()
            drawn = page.evaluate("performance.now()")
            paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
            figures.append((query, paint, drawn))
            record_property(query, f"first paint {paint:.0f} ms, list drawn {drawn:.0f} ms")
    assert all(paint < 1000 * BUSY and drawn < 1000 * BUSY for _, paint, drawn in figures)


def test_a_run_of_ten_thousand_steps_is_redrawn_at_once(chromium: Browser, many: Service, record_property: Any) -> None:
    with opened(chromium, many.url + "/runs/huge") as page:
        expect(page.locator(".at").first).to_contain_text("step 9999")
        page.evaluate(TIMED)
        box = page.locator(".u-over").first.bounding_box()
        assert box
        for turn in range(5):
            page.mouse.move(box["x"] + box["width"] * (0.2 + 0.05 * turn), box["y"] + 40)
            page.mouse.down()
            page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 40, steps=3)
            page.mouse.up()
            expect(page).to_have_url(re.compile(r"x=\d+-\d+"))
            page.keyboard.press("0")
            expect(page).not_to_have_url(re.compile("x="))
        took = sorted(page.evaluate("window.took"))
        record_property("redraw_ms", took)
        assert len(took) == 10
        assert took[5] < 50 * BUSY


def test_every_peak_of_a_long_run_is_kept_by_what_is_drawn_of_it(chromium: Browser, many: Service) -> None:
    path = "/v1/runs/huge/series?field=gaps.mismatch.k3&by=step"
    peak = max(ask(many.url, path + "&points=10000")["value"])
    assert max(ask(many.url, path + "&points=1500")["value"]) == peak
