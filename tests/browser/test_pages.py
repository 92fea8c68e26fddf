"""Each page of each kind of run: it shows what the API says, leaves the console empty, and can be used by everyone."""

import re
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.fixtures import planted as runs
from tests.fixtures.chromium import Open
from tests.fixtures.live import Service
from tests.fixtures.planted import ask

OF_A_RUN = ("", "/steps/1", "/what-if", "/worst", "/diagnosis")
OF_ALL = ("/", "/alerts", "/compare", "/compare?runs=healthy,drifting", "/runbook")
NAMES = tuple(run.name for run in runs.ALL)
#: Kinds of runs that axe-core looks at: all that a page draws, little of it, one gap alone.
LOOKED_AT = ("drifting", "young", "without-pi-old")
#: A phone.
NARROW = {"width": 390, "height": 844}


def go(page: Page, path: str) -> None:
    """Another page of the same service, once its script has drawn. Files of the first one are not loaded again."""
    page.goto(page.evaluate("location.origin") + path)
    page.wait_for_selector("#page > *, .prose, #swagger .info")


def check(page: Page, path: str, accessible: bool) -> None:
    """Once it rests, it is as wide as the screen; nothing keeps anybody out."""
    page.wait_for_timeout(200)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    if accessible:
        assert serious(page) == [], path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_of_all_runs_are_accessible_and_quiet(show: Open, scheme: str) -> None:
    first = "/docs" if scheme == "dark" else OF_ALL[0]  # Swagger UI's own is not ours; light it is in test_docs_page
    with show(first, color_scheme=scheme) as page:
        for path in OF_ALL:
            if path != first:
                go(page, path)
            assert page.title().endswith("offpolicy-monitor")
            check(page, path, accessible=True)


@pytest.mark.parametrize("name", NAMES)
def test_pages_of_any_kind_of_run_are_accessible_and_quiet(show: Open, name: str) -> None:
    pages_of_a_run(show, name, name in LOOKED_AT)


@pytest.mark.parametrize("name", ["drifting", runs.LONGEST_NAME])
def test_pages_fit_a_phone(show: Open, name: str) -> None:
    pages_of_a_run(show, name, name == "drifting", viewport=NARROW, color_scheme="dark")


def pages_of_a_run(show: Open, name: str, accessible: bool, **context: Any) -> None:
    """Look at all of them, one after another in one tab."""
    first, *others = OF_A_RUN
    with show(f"/runs/{name}{first}", **context) as page:
        check(page, first, accessible)
        for path in others:
            go(page, f"/runs/{name}{path}")
            check(page, path, accessible)


@pytest.mark.parametrize("part", OF_A_RUN)
def test_a_run_that_is_not_there_says_what_to_do(show: Open, part: str) -> None:
    with show(f"/runs/nobody{part}", expected=r"status of 404 \(Not Found\) \S+/v1/runs/nobody$") as page:
        expect(page.get_by_text("There is no run nobody yet")).to_be_visible()
        expect(page.get_by_text('run="nobody")')).to_be_visible()
        expect(page.locator("#curl")).to_contain_text("/v1/runs/nobody/batches")


def test_the_sentence_of_a_run_is_the_services(show: Open, planted: Service) -> None:
    said = ask(planted.url, "/v1/runs/drifting/verdict")
    with show("/runs/drifting") as page:
        expect(page.get_by_role("heading", level=1)).to_have_text(said["head"])
        expect(page.get_by_text(said["action"])).to_be_visible()


def test_figures_beside_a_plot_are_those_of_the_api(show: Open, planted: Service) -> None:
    with show("/runs/drifting?step=40") as page:
        series = ask(planted.url, "/v1/runs/drifting/series?field=gaps.mismatch.k3&by=step")
        value = series["value"][series["step"].index(40)]
        shown = page.locator(".panel").first.locator("dd").first
        expect(shown).to_have_text(f"{value:.2g}")


def test_markup_in_labels_and_ids_stays_text(show: Open) -> None:
    for path in ("/runs/markup", "/", "/runs/markup/worst"):
        with show(path) as page:
            expect(page.get_by_text(runs.MARKUP).first).to_be_visible()
            assert page.locator("img").count() == 0


def test_arrow_keys_move_the_step_and_the_address_keeps_it(show: Open) -> None:
    with show("/runs/healthy") as page:
        page.keyboard.press("ArrowLeft")
        expect(page).to_have_url(re.compile(r"step=46"))
        expect(page.locator(".at").first).to_contain_text("step 46, pinned")
        page.keyboard.press("End")
        expect(page).not_to_have_url(re.compile("step="))


def test_a_shared_link_gives_the_same_picture(show: Open) -> None:
    with show("/runs/drifting?step=30&x=20-40&theme=dark&method=opsm") as page:
        expect(page.locator(".at").first).to_contain_text("step 30, pinned")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        first = page.locator(".stack").screenshot()
        address = page.url
    with show(address.partition("/runs")[1] + address.partition("/runs")[2]) as page:
        expect(page.locator(".at").first).to_contain_text("step 30, pinned")
        assert page.locator(".stack").screenshot() == first


def test_every_plot_says_in_words_what_it_shows(show: Open) -> None:
    with show("/runs/drifting") as page:
        labels = [one.get_attribute("aria-label") or "" for one in page.locator(".plot[role=img]").all()]
        assert labels and all(re.search(r"(rose|fell|stayed) from .+ to .+; steps 0 to 47", label) for label in labels)


def test_a_first_page_is_small_and_all_from_here(show: Open, planted: Service) -> None:
    with show("/runs/healthy", anew=True) as page:
        sizes = page.evaluate("performance.getEntriesByType('resource').map((one) => [one.name, one.decodedBodySize])")
        own = [name for name, _ in sizes]
        assert all(name.startswith(planted.url) for name in own)
        assert sum(size for _, size in sizes) < 300_000


def serious(page: Page) -> list[str]:
    """What axe-core finds that keeps somebody out; to tell what it approves, and where, would take it as long again."""
    found = Axe().run(page, options={"resultTypes": ["violations"], "selectors": False}).response["violations"]
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:160]}" for one in found if one["impact"] in ("serious", "critical")
    ]
