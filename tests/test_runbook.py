"""The runbook has what an alert's link promises: a section, its four parts, links that lead, queries that parse."""

import re
import subprocess
from pathlib import Path

import pytest
from offpolicy_monitor.alerts import RULES
from offpolicy_monitor.families import FAMILIES
from offpolicy_monitor.figures import is_known
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.server.routes.runbook import anchor
from offpolicy_monitor.settings import Settings

from tests.fixtures.application import Client
from tests.fixtures.tools import require_tool

ROOT = Path(__file__).resolve().parent.parent
RULE_FILES = sorted((ROOT / "dashboards" / "prometheus").glob("*.rules.yaml"))
TEXT = (ROOT / "docs" / "runbook.md").read_text()
COMMON = ("First", "Checks")
PARTS = (r"\*\*Means\.\*\* ", r"\*\*Confirm\.\*\* ", r"\*\*Try\.\*\* ", r"\*\*(Ignore when|Never ignore it\.?)\*\* ")


def alerts() -> set[str]:
    """Every alert of the service and of the rule files."""
    rendered = {name for file in RULE_FILES for name in re.findall(r"- alert: (\w+)", file.read_text())}
    return {rule.name for rule in RULES} | rendered


def sections() -> dict[str, str]:
    """Name -> text, of the second-level headings."""
    parts = re.split(r"^## (.+)$", TEXT, flags=re.M)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def queries() -> list[str]:
    """Every line of PromQL."""
    return [line for block in re.findall(r"```promql\n(.*?)```", TEXT, re.S) for line in block.splitlines()]


ALERT_SECTIONS = {name: text for name, text in sections().items() if name not in COMMON}


def test_every_alert_has_its_section_and_every_section_its_alert() -> None:
    assert {"MismatchKL", "RunSilent", "ServiceDown"} <= alerts()
    assert set(ALERT_SECTIONS) == alerts()
    assert len(re.findall(r"^## ", TEXT, re.M)) == len(sections()), "a section stands twice"


@pytest.mark.parametrize("name", ALERT_SECTIONS)
def test_a_section_means_confirms_tries_and_says_when_to_ignore_in_this_order(name: str) -> None:
    text = ALERT_SECTIONS[name]
    found = [list(re.finditer(f"^{part}", text, re.M)) for part in PARTS]
    assert [len(matches) for matches in found] == [1, 1, 1, 1]
    positions = [matches[0].start() for matches in found]
    assert positions == sorted(positions)
    assert positions[1] < text.index("```promql\n") < positions[2], "PromQL belongs to what confirms"


def test_no_sentence_of_a_section_stands_in_another() -> None:
    sentences = [
        sentence
        for text in ALERT_SECTIONS.values()
        for sentence in re.split(r"(?<=[.?:])\s+", re.sub(r"```.*?```", "", text, flags=re.S))
        if len(sentence) > 40
    ]
    assert sorted({sentence for sentence in sentences if sentences.count(sentence) > 1}) == []


def test_links_within_the_runbook_lead_to_headings() -> None:
    headings = {anchor(heading) for heading in re.findall(r"^#+ (.+)$", TEXT, re.M)}
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= headings


def test_checks_that_are_named_are_links_and_exist() -> None:
    prose = "".join(text for name, text in sections().items() if name != "Checks")
    assert re.findall(r"[Cc]hecks?\s\d", prose) == []
    assert set(re.findall(r"\[(\d)\]", TEXT)) == set(re.findall(r"^### Check (\d)$", TEXT, re.M)) == set("1234567")
    assert re.findall(r"^\[(\d)\]: #check-(\d)$", TEXT, re.M) == [(number, number) for number in "1234567"]


def test_calls_that_are_named_are_routes_with_these_parameters() -> None:
    paths = create_app(Settings(database_url="sqlite:///unused.db")).openapi()["paths"]
    calls = re.findall(r"`(GET|PATCH|DELETE) (/v1/[^`?]*)(?:\?([^`]*))?`", TEXT)
    assert len(calls) > 20
    for method, path, query in calls:
        route = re.sub(r"(?<=steps/)STEP", "{step}", path).replace("RUN", "{run}")
        assert method.lower() in paths.get(route, {}), f"{method} {path}"
        known = {parameter["name"] for parameter in paths[route][method.lower()].get("parameters", ())}
        assert {part.partition("=")[0] for part in query.split("&") if part} <= known, f"{path}?{query}"


def test_figures_that_are_plotted_are_known() -> None:
    plotted = re.findall(r"series\?field=([^`&]+)", TEXT)
    assert "gaps.mismatch.k3" in plotted
    assert [path for path in plotted if not is_known(path)] == []


def test_variables_that_are_named_are_settings() -> None:
    named = set(re.findall(r"`(OFFPOLICY_\w+?)(?:=\w+)?`", TEXT))
    assert named and named <= {Settings.variable(name) for name in Settings.model_fields}


def test_families_that_are_queried_exist() -> None:
    known = {family.full_name for family in FAMILIES}
    suffixed = {f"{name}_{suffix}" for name in known for suffix in ("bucket", "count", "sum")}
    queried = {name for query in queries() for name in re.findall(r"\boffpolicy_\w+", query)}
    assert queried - known - suffixed == set()


def test_queries_parse(tmp_path: Path) -> None:
    rules = "".join(f"  - record: runbook:query{index}\n    expr: {query!r}\n" for index, query in enumerate(queries()))
    (tmp_path / "rules.yaml").write_text(f"groups:\n- name: runbook\n  rules:\n{rules}")
    check = [str(require_tool("promtool")), "check", "rules", str(tmp_path / "rules.yaml")]
    answer = subprocess.run(check, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_the_service_has_every_section_under_the_address_that_alerts_link_to(client: Client) -> None:
    response = client.get("/runbook")
    assert response.status_code == 200
    assert {name for name in sections() if f'<h2 id="{name}" tabindex="-1">{name}</h2>' in response.text} == set(
        sections()
    )
    assert "runbook" in client.get("/").text


def test_every_link_of_the_runbook_page_leads_somewhere(client: Client) -> None:
    page = client.get("/runbook").text
    anchors = set(re.findall(r'id="([^"]+)"', page))
    targets = set(re.findall(r'href="([^"]+)"', page))
    assert {target for target in targets if target.startswith("#") and target[1:] not in anchors} == set()
    for target in sorted(target for target in targets if not target.startswith("#")):
        assert client.get(target).status_code == 200, target
