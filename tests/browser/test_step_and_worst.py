"""A step says what rules make of it and leads to its neighbours; the worst sequences are of a step or of a range."""

import re

from playwright.sync_api import expect

from tests.fixtures.chromium import Open
from tests.fixtures.live import Service
from tests.fixtures.planted import ask


def test_a_step_names_the_rules_that_fire_there_each_by_its_worst_severity(show: Open, planted: Service) -> None:
    step = ask(planted.url, "/v1/runs/drifting/steps/40")
    with show("/runs/drifting/steps/40") as page:
        rules = page.locator(".rules")
        expect(rules).to_contain_text("Skip")
        for alert in {row["alert"] for row in step["alerts"]}:
            worst = "critical" if {"alert": alert, "severity": "critical"} in step["alerts"] else "warning"
            expect(rules.get_by_role("link", name=f"{alert}, {worst}: runbook")).to_be_visible()
    with show("/runs/healthy/steps/40") as page:
        expect(page.locator(".rules")).to_have_text("Accept: no rule fires")


def test_links_and_arrow_keys_lead_from_a_step_to_its_neighbours(show: Open) -> None:
    with show("/runs/drifting/steps/40?theme=dark") as page:
        page.get_by_role("link", name="Step after").click()
        expect(page).to_have_url(re.compile(r"/steps/41\?theme=dark"))
        expect(page.get_by_role("heading", level=1)).to_have_text("Step 41")
        page.keyboard.press("ArrowLeft")
        expect(page.get_by_role("heading", level=1)).to_have_text("Step 40")


def test_figures_of_a_step_have_words_and_units_and_the_api_s_values(show: Open, planted: Service) -> None:
    gap = ask(planted.url, "/v1/runs/drifting/steps/40")["gaps"]["mismatch"]
    with show("/runs/drifting/steps/40") as page:
        row = page.locator(".plain tbody tr").filter(has_text="KL divergence, k3")
        expect(row).to_contain_text("nats per token")
        expect(row.locator("td").first).to_have_text(f"{gap['k3']:.2g}")


def test_a_definition_has_the_formula_its_symbols_the_unit_and_the_call(show: Open, planted: Service) -> None:
    rows = {row["path"]: row for row in ask(planted.url, "/v1/figures")["figures"]}
    k3 = rows["gaps.{gap}.k3"]
    with show("/runs/drifting/steps/40") as page:
        page.locator(".plain .def").first.focus()
        tip = page.get_by_role("tooltip")
        for text in (
            k3["meaning"].replace("`", ""),
            f"Unit: {k3['unit']}",
            "d = log π_old − log μ",
            "GET /v1/runs/drifting/series?field=gaps.mismatch.k3",
        ):
            expect(tip).to_contain_text(text)


def test_worst_sequences_of_a_range_are_the_api_s_and_stay_in_the_address(show: Open, planted: Service) -> None:
    asked = "/v1/runs/drifting/worst?from=30&to=40&gap=mismatch&limit=10"
    found = [(one["step"], one["id"] or one["index"]) for one in ask(planted.url, asked)["sequences"]]
    assert len({step for step, _ in found}) > 1
    with show("/runs/drifting/worst") as page:
        field = page.get_by_label("Step or range")
        field.fill("30-40")
        field.press("Enter")
        expect(page).to_have_url(re.compile("from=30&to=40"))
        shown = page.locator("#list section")
        for index, (step, name) in enumerate(found):
            expect(shown.nth(index)).to_contain_text(f"Sequence {name}")
            expect(shown.nth(index)).to_contain_text(f"step {step},")
        address = page.url
        field.fill("40")
        field.press("Enter")
        expect(page).to_have_url(re.compile("step=40"))
        expect(page).not_to_have_url(re.compile("from="))
        expect(shown.first).to_contain_text("step 40,")
    with show(address.partition(planted.url)[2]) as page:
        expect(page.get_by_label("Step or range")).to_have_value("30-40")
        expect(page.locator("#list section").first).to_contain_text(f"step {found[0][0]},")


def test_the_diagnosis_says_since_which_step_the_run_is_off_for_its_cause(show: Open, planted: Service) -> None:
    verdict = ask(planted.url, "/v1/runs/drifting/verdict")
    assert verdict["cause"] and verdict["since_step"] is not None
    with show("/runs/drifting/diagnosis") as page:
        page.get_by_role("link", name=f"since step {verdict['since_step']}").click()
        expect(page).to_have_url(re.compile(rf"/runs/drifting\?step={verdict['since_step']}"))
