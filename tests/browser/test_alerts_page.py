"""Alerts as people read them: since which step, how far it went, when it was acted on, the way to where it began."""

import json
import re
import urllib.request
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.fixtures import planted as runs
from tests.fixtures.chromium import Open
from tests.fixtures.live import Service
from tests.fixtures.planted import ask


def found(service: Service, alert: str, severity: str) -> dict[str, Any]:
    """The one open alert of the drifting run."""
    listed = ask(service.url, "/v1/alerts?run=drifting&merge=5&state=active&limit=200")["alerts"]
    [row] = [one for one in listed if (one["alert"], one["severity"]) == (alert, severity)]
    return dict(row)


def row_of(page: Page, alert: str) -> Locator:
    return page.locator("tbody tr").filter(has=page.get_by_role("link", name=re.compile(f"^{alert},")))


def test_a_rule_is_one_row_of_its_worst_severity_with_peak_and_steps_as_the_api_has_them(
    show: Open, planted: Service
) -> None:
    critical = found(planted, "MismatchDrift", "critical")
    with show("/alerts?run=drifting") as page:
        row = row_of(page, "MismatchDrift")
        expect(row).to_have_count(1)
        cells = row.locator("td")
        expect(cells.nth(3)).to_contain_text(str(critical["since_step"]))
        expect(cells.nth(5)).to_have_text(f"{round(critical['peak']):,}")
        expect(cells.nth(6)).to_have_text(f"{critical['threshold']:g}")
        expect(cells.nth(7)).to_contain_text(f"Openat step {critical['active_step']}")


def test_the_alert_that_speaks_comes_first_with_what_it_says_and_those_it_speaks_for_under_it(
    show: Open, planted: Service
) -> None:
    root, data = found(planted, "MismatchKL", "critical"), found(planted, "DataQuality", "warning")
    assert root["inhibited_by"] is None and len(root["evidence"]) >= 5
    assert data["quiet_since"] is not None
    with show("/alerts?run=drifting") as page:
        rows = page.locator("tbody tr")
        expect(rows.nth(0)).to_contain_text("MismatchKL")
        expect(rows.nth(1)).to_have_text(root["message"].rpartition(" ")[0])
        under = page.locator("tbody tr.goes-with")
        expect(under).to_have_count(len(root["evidence"]))
        assert {
            text.split(",")[0]
            for text in under.locator("a[aria-label]").evaluate_all(
                "links => links.map((link) => link.getAttribute('aria-label'))"
            )
        } == set(root["evidence"])
        expect(rows.nth(2)).to_have_class(re.compile("goes-with"))
        expect(page.locator("#summary")).to_contain_text(f"2 open, {len(root['evidence'])} more go with them")
        beside = page.get_by_role("row", name="DataQuality, warning")
        expect(beside).to_contain_text(f"quiet since step {data['quiet_since']}")
    with show("/runs/drifting") as page:
        labels = page.locator(".lane-labels > div")
        expect(labels.nth(0)).to_contain_text("MismatchKL")
        expect(labels.nth(1)).to_have_class(re.compile("goes-with"))


def test_a_rule_that_warned_before_it_was_critical_says_so(show: Open, planted: Service) -> None:
    critical = found(planted, "MismatchKL", "critical")
    patch(planted.url, {"MismatchKL": {"warning": 1e-9}})
    try:
        warning = found(planted, "MismatchKL", "warning")
        assert warning["since_step"] < critical["since_step"]
        with show("/alerts?run=drifting") as page:
            expect(row_of(page, "MismatchKL")).to_contain_text(f"warning from {warning['since_step']}")
    finally:
        patch(planted.url, {})


def patch(url: str, alerts: dict[str, Any]) -> None:
    """The thresholds of the drifting run."""
    content = json.dumps({"alerts": alerts}).encode()
    request = urllib.request.Request(
        f"{url}/v1/runs/drifting", content, {"Content-Type": "application/json"}, method="PATCH"
    )
    urllib.request.urlopen(request, timeout=10).close()


def test_an_alert_leads_to_the_run_at_the_step_where_it_began(show: Open, planted: Service) -> None:
    since = found(planted, "MismatchKL", "critical")["since_step"]
    assert since == runs.ONSET
    with show("/alerts?run=drifting") as page:
        row_of(page, "MismatchKL").get_by_role("link", name=str(since), exact=True).click()
        expect(page).to_have_url(re.compile(rf"/runs/drifting\?step={since}"))
        expect(page.locator(".at").first).to_contain_text(f"step {since}, pinned")


def test_an_alert_leads_to_its_section_of_the_runbook(show: Open) -> None:
    with show("/alerts?run=drifting", expected="Autofocus processing was blocked") as page:
        row_of(page, "MismatchKL").get_by_role("link", name="MismatchKL, critical: runbook").click()
        expect(page.locator("#MismatchKL")).to_be_in_viewport()


def test_what_a_rule_says_shows_its_formula_and_the_call_on_focus(show: Open, planted: Service) -> None:
    expression = found(planted, "MismatchKL", "critical")["expression"]
    with show("/alerts?run=drifting") as page:
        row_of(page, "MismatchKL").locator(".def").focus()
        expect(page.get_by_role("tooltip")).to_contain_text(expression)
        expect(page.get_by_role("tooltip")).to_contain_text("GET /v1/alerts?run=drifting")


def test_a_lane_of_the_run_page_tells_the_peak_and_since_when(show: Open, planted: Service) -> None:
    critical = found(planted, "MismatchKL", "critical")
    with show("/runs/drifting") as page:
        page.locator(".lane-labels").get_by_role("link", name="MismatchKL").focus()
        tip = page.get_by_role("tooltip")
        expect(tip).to_contain_text(f"Peak {critical['peak']:.2g}, critical at 0.01")
        expect(tip).to_contain_text(f"from step {critical['since_step']}, open at {critical['active_step']}")
