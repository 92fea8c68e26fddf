"""A report is one file that holds all that it shows: opened from disk, without a service, it draws a run's page."""

import json
import re
from pathlib import Path

import pytest
from offpolicy_monitor.cli import main
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.pages.report import answers, call_of_series, document, in_script
from playwright.sync_api import Browser, expect

from tests.fixtures.chromium import Open, opened
from tests.fixtures.planted import DRIFTING, LAST, MARKUP, ONSET, TWO, YOUNG, ask, serving_planted
from tests.fixtures.service import free_port

ABOUT = {"compared": ["opsm", "icepop"], "correction": "mine"}


def test_the_figures_are_those_that_the_script_of_the_page_lists() -> None:
    call = call_of_series("r1", ABOUT)
    assert call.startswith("v1/runs/r1/series?field=gaps.mismatch.k3&field=gaps.staleness.k3&")
    masked = re.findall(r"field=methods\.(\w+)\.masked_token_fraction", call)
    assert masked == ["mine", "opsm", "icepop"]
    assert call.endswith("&by=step&points=1500&layout=tables")


def test_what_there_is_not_is_left_out_and_a_run_that_there_is_not_is_refused() -> None:
    def get(call: str) -> dict | None:
        if call.endswith("/verdict"):
            return {"since_step": 3}
        if "/series?" in call:
            return {"tables": [{"step": [1, 2, 7]}]}
        return None if call.endswith("/diagnosis") else ABOUT

    found = answers("r1", get)
    assert "v1/runs/r1/diagnosis" not in found
    assert [call for call in found if "worst" in call] == [
        f"v1/runs/r1/worst?from={step}&to={step}&limit=1" for step in (3, 7)
    ]
    with pytest.raises(Refusal, match="there is no run named r1"):
        answers("r1", lambda call: None)


def test_no_text_of_a_run_ends_the_script_that_holds_it() -> None:
    hostile = {"v1/runs/r1": {"labels": {"a": "</script><script>alert(1)</script>", "b": "<!--<script"}}}
    assert json.loads(in_script(hostile)) == hostile and "<" not in in_script(hostile)
    plain = document("r1", {}, "http://127.0.0.1:8900", 0.0)
    text = document("r1", hostile, "http://127.0.0.1:8900", 0.0)
    assert text.count("<script") == plain.count("<script") and text.count("</script") == plain.count("</script")


def test_nothing_is_loaded_from_anywhere_and_links_lead_to_the_service() -> None:
    text = document("r1", {}, "https://proxy.example/monitor/", 0.0)
    assert re.findall(r"<script[^>]* src=|@import|url\(", text) == []
    loaded = re.findall(r"<link [^>]*href=\"([^\"]*)", text)
    assert [url.partition(",")[0] for url in loaded] == ["data:image/svg+xml;base64"]
    led = re.findall(r"<a [^>]*href=\"([^\"]*)", text)
    assert {url for url in led if not url.startswith(("https://proxy.example/monitor/", "#"))} == set()
    assert "Report of 1970-01-01 00:00 UTC" in text and "content=\"default-src 'none';" in text


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """The folder with a report of each run, and the verdicts; the service that wrote them is gone."""
    folder = tmp_path_factory.mktemp("reports")
    names = [run.name for run in TWO]
    with serving_planted(tmp_path_factory, "two", TWO) as service:
        for name in names:
            assert main(["report", name, "-o", str(folder / f"{name}.html"), "--url", service.url]) == 0
        return folder, {name: ask(service.url, f"/v1/runs/{name}/verdict") for name in names}


@pytest.fixture
def read(chromium: Browser, reports: tuple[Path, dict]) -> Open:
    """Open the report of a run, in a browser that has no network."""
    return lambda name, query="": opened(chromium, (reports[0] / f"{name}.html").as_uri() + query, offline=True)


def test_a_file_from_disk_shows_the_sentence_and_the_plots(read: Open, reports: tuple[Path, dict]) -> None:
    with read(DRIFTING.name) as page:
        expect(page.get_by_role("heading", level=1)).to_have_text(reports[1][DRIFTING.name]["head"])
        expect(page.get_by_text(reports[1][DRIFTING.name]["action"])).to_be_visible()
        plots = page.locator(".plot[role=img]")
        assert plots.count() >= 4
        assert all(re.search(r"steps 0 to 47", one.get_attribute("aria-label") or "") for one in plots.all())
        expect(page.get_by_text(f"step {LAST}", exact=True).last).to_be_visible()
        expect(page.locator(".foot")).to_contain_text("Report of 20")


def test_keys_move_through_a_report_and_it_says_which_sequences_it_has(read: Open) -> None:
    with read(DRIFTING.name, f"?step={ONSET}") as page:
        expect(page.locator(".at").first).to_contain_text(f"step {ONSET}, pinned")
        expect(page.get_by_text(re.compile(r"^largest \|d\|"))).to_be_visible()
        page.keyboard.press("ArrowRight")
        expect(page.get_by_text("This report has the worst sequences of its newest step")).to_be_visible()
        page.keyboard.press("[")
        page.keyboard.press("t")
        expect(page.locator(".at").first).to_contain_text(f"step {ONSET + 1}, pinned")


def test_a_young_run_with_markup_in_a_label_is_drawn_as_text(read: Open, reports: tuple[Path, dict]) -> None:
    with read(YOUNG.name) as page:
        expect(page.get_by_role("heading", level=1)).to_have_text(reports[1][YOUNG.name]["head"])
        expect(page.get_by_text(MARKUP).first).to_be_visible()
        assert page.locator("img").count() == 0


def test_definitions_are_carried_too(read: Open) -> None:
    with read(DRIFTING.name) as page:
        page.locator("[data-figure]").first.focus()
        expect(page.locator("#tip, [role=tooltip]").first).to_contain_text("GET /v1/runs/drifting/series?field=")


def test_without_a_service_no_file_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert main(["report", "r1", "-o", str(tmp_path / "r1.html"), "--url", url]) == 1
    assert "no service answers at" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
