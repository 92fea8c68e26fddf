"""All plots of a run share one range and one cursor: what one does in a plot is seen in all of them."""

import re

import pytest
from playwright.sync_api import FloatRect, Page, expect

from tests.fixtures.chromium import Open
from tests.fixtures.live import Service
from tests.fixtures.planted import ask

#: Values of the lists beside all plots, as they are read now.
READ_OUT = "[...document.querySelectorAll('.rail dd:not(.note)')].map((one) => one.textContent)"


def inside(page: Page, index: int) -> FloatRect:
    """Where a plot's lines are."""
    plot = page.locator(".u-over").nth(index)
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box
    return box


def test_the_cursor_in_one_plot_reads_its_step_in_all_of_them(show: Open, planted: Service) -> None:
    series = "/v1/runs/drifting/series?by=step&field=gaps.mismatch.k3&field=gaps.mismatch.ess"
    mismatch, ess = (one["value"] for one in ask(planted.url, series)["series"])
    with show("/runs/drifting") as page:
        before = page.evaluate(READ_OUT)
        box = inside(page, 0)
        page.mouse.move(box["x"] + box["width"] * (10.5 / 48), box["y"] + 50)
        expect(page.locator(".at").first).to_have_text("step 10")
        after = page.evaluate(READ_OUT)
        assert after[0] == f"{mismatch[10]:.1e}".replace("e-05", "\u00d710\u207b\u2075")
        assert mismatch[10] != mismatch[-1] and ess[10] != ess[-1]
        assert sum(one != other for one, other in zip(before, after, strict=True)) > len(before) / 2
        lefts = [box["x"] for box in (line.bounding_box() for line in page.locator(".u-cursor-x").all()) if box]
        assert len(lefts) > 1 and len(set(lefts)) == 1


@pytest.mark.parametrize("index", [0, 1, 3])
def test_a_brush_in_any_plot_zooms_all_and_a_double_click_shows_the_whole_run_again(show: Open, index: int) -> None:
    with show("/runs/drifting") as page:
        box = inside(page, index)
        page.mouse.move(box["x"] + box["width"] * (20.5 / 48), box["y"] + 20)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * (40.5 / 48), box["y"] + 20, steps=4)
        page.mouse.up()
        expect(page).to_have_url(re.compile(r"x=20-40"))
        page.locator(".u-over").first.dblclick(position={"x": 100, "y": 50})
        expect(page).not_to_have_url(re.compile("x="))
        expect(page).not_to_have_url(re.compile("step="))


def test_a_click_in_the_bar_of_steps_pins_that_step(show: Open) -> None:
    with show("/runs/drifting") as page:
        box = inside(page, 0)
        bar = page.get_by_role("slider", name="Step").bounding_box()
        assert bar
        page.mouse.click(box["x"] + box["width"] * (5.5 / 48), bar["y"] + bar["height"] - 6)
        expect(page.get_by_role("slider", name="Step")).to_have_attribute("aria-valuenow", "5")
        expect(page).to_have_url(re.compile("step=5"))
