"""Everything by keyboard: the bar of steps, the list of keys, the theme; and one sees where one is."""

import re

from playwright.sync_api import Page, expect

from tests.fixtures.chromium import Open

#: Pages have fewer things than this that one can reach by Tab.
STOPS = 80


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until the element has the focus; each stop on the way must be seen to have it."""
    for _ in range(STOPS):
        page.keyboard.press("Tab")
        assert outlined(page), page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"Tab does not reach {selector}")


def outlined(page: Page) -> bool:
    """Whether what has the focus is marked, or is part of what is."""
    width = "parseFloat(getComputedStyle(document.activeElement).outlineWidth)"
    style = "getComputedStyle(document.activeElement).outlineStyle"
    return bool(page.evaluate(f"{style} !== 'none' && {width} >= 1"))


def test_tab_reaches_the_bar_of_steps_whose_arrows_move_the_step(show: Open) -> None:
    with show("/runs/drifting") as page:
        tab_to(page, "[role=slider]")
        bar = page.get_by_role("slider", name="Step")
        expect(bar).to_have_attribute("aria-valuenow", "47")
        page.keyboard.press("ArrowLeft")
        expect(bar).to_have_attribute("aria-valuenow", "46")
        page.keyboard.press("Shift+ArrowLeft")
        expect(bar).to_have_attribute("aria-valuenow", "36")
        expect(bar).to_have_attribute("aria-valuetext", re.compile(r"step 36, skip, mismatch k3 0\.0\d+"))
        expect(page).to_have_url(re.compile("step=36"))
        page.keyboard.press("Home")
        expect(bar).to_have_attribute("aria-valuenow", "0")


def test_enter_on_the_bar_of_steps_opens_the_step(show: Open) -> None:
    with show("/runs/drifting?step=40") as page:
        tab_to(page, "[role=slider]")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile("/runs/drifting/steps/40"))
        expect(page.get_by_role("heading", level=1)).to_have_text("Step 40")


def test_the_question_mark_lists_the_keys_and_escape_closes_them(show: Open) -> None:
    with show("/runs/drifting") as page:
        page.keyboard.press("?")
        keys = page.get_by_role("dialog", name="Keys")
        expect(keys).to_be_visible()
        expect(keys).to_contain_text("step back, forward")
        page.keyboard.press("Escape")
        expect(keys).to_be_hidden()


def test_t_flips_the_theme_which_the_address_and_links_keep(show: Open) -> None:
    theme = "document.documentElement.dataset.theme"
    with show("/runs/drifting", color_scheme="light") as page:
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.keyboard.press("t")
        assert page.evaluate(theme) == "dark"
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
        expect(page).to_have_url(re.compile("theme=dark"))
        page.get_by_role("link", name="Diagnosis", exact=True).click()
        expect(page).to_have_url(re.compile("/diagnosis.*theme=dark"))
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.keyboard.press("t")
        expect(page).to_have_url(re.compile("theme=light"))


def test_m_smooths_the_lines_and_neither_the_figures_nor_what_is_said_of_them(show: Open) -> None:
    with show("/runs/drifting?step=40") as page:
        plot, figures = page.locator(".plot[role=img]").first, page.locator(".panel").first.locator("dd")
        said, listed, measured = plot.get_attribute("aria-label"), figures.all_inner_texts(), plot.screenshot()
        page.keyboard.press("m")
        expect(page).to_have_url(re.compile("smooth=5"))
        expect(page.get_by_label("Lines")).to_have_value("5")
        assert plot.screenshot() != measured
        assert (plot.get_attribute("aria-label"), figures.all_inner_texts()) == (said, listed)
        page.get_by_label("Lines").select_option("as measured")
        expect(page).not_to_have_url(re.compile("smooth="))
        assert plot.screenshot() == measured


def test_a_definition_is_read_on_focus_and_closed_by_escape(show: Open) -> None:
    with show("/runs/drifting") as page:
        tab_to(page, ".stack [data-figure]")
        tip = page.get_by_role("tooltip")
        expect(tip).to_contain_text("gaps.mismatch.k3")
        expect(tip).to_contain_text("/v1/runs/drifting/series?field=gaps.mismatch.k3")
        page.keyboard.press("Escape")
        expect(tip).to_be_hidden()


def test_every_stop_of_the_list_of_runs_shows_its_focus(show: Open) -> None:
    with show("/") as page:
        expect(page.locator(".runname").first).to_be_visible()
        tab_to(page, ".runname")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile("/runs/drifting"))


def test_plus_and_minus_look_closer_at_the_pinned_step_and_0_shows_all(show: Open) -> None:
    with show("/runs/drifting?step=30") as page:
        page.keyboard.press("+")
        expect(page).to_have_url(re.compile(r"x=18-42"))
        page.keyboard.press("+")
        expect(page).to_have_url(re.compile(r"x=24-36"))
        page.keyboard.press("-")
        expect(page).to_have_url(re.compile(r"x=18-42"))
        page.keyboard.press("0")
        expect(page).not_to_have_url(re.compile("x="))


def test_every_plot_can_be_reached_and_tells_what_it_shows(show: Open) -> None:
    with show("/runs/drifting") as page:
        plots = page.locator(".plot[role=img]")
        assert plots.count() >= 4
        for plot in plots.all():
            plot.focus()
            expect(plot).to_be_focused()
            assert outlined(page)
            expect(plot).to_have_attribute("aria-label", re.compile(r".+ \(.+\): .+ from .+ to .+"))
