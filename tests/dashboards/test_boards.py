"""The dashboards are what the generator writes, ask questions, say what to do, and use only what is exported."""

import re
from collections import Counter
from functools import cache
from typing import Any

import pytest
import yaml
from offpolicy_monitor.families import BY_NAME, PREFIX
from offpolicy_monitor.settings import Settings

from scripts.dashboards.__main__ import files
from tests.dashboards.boards import FILES, ROOT, panels, read

BOARDS = [read(path) for path in FILES]
PANELS = [(board["uid"], panel) for board in BOARDS for panel in panels(board)]
SUFFIXES = ("_bucket", "_count", "_sum")


def named(case: Any) -> str:
    return case[1]["title"] if isinstance(case, tuple) else str(case)


def test_the_files_are_what_make_dashboards_writes() -> None:
    wanted = files()
    assert set(FILES) == set(wanted)
    for path, content in wanted.items():
        assert path.read_text() == content, f"{path.name} is not current: run make dashboards"


def test_there_is_a_dashboard_for_the_fleet_a_run_the_masks_and_the_service() -> None:
    names = ["offpolicy-fleet", "offpolicy-ingest", "offpolicy-masks", "offpolicy-run"]
    assert [board["uid"] for board in BOARDS] == [file.stem for file in FILES] == names


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board["uid"])
def test_ids_and_titles_are_unique_and_panels_do_not_overlap(board: dict[str, Any]) -> None:
    for field in ("id", "title"):
        assert [value for value, times in Counter(p[field] for p in board["panels"]).items() if times > 1] == []
    positions = [panel["gridPos"] for panel in board["panels"]]
    cells = [
        (x, y)
        for position in positions
        for x in range(position["x"], position["x"] + position["w"])
        for y in range(position["y"], position["y"] + position["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize("case", PANELS, ids=named)
def test_a_panel_asks_a_question_and_says_what_its_figure_means(case: tuple[str, dict[str, Any]]) -> None:
    _, panel = case
    assert panel["title"].endswith("?")
    assert len(panel["description"]) > 40
    assert panel["description"].endswith(".")


@pytest.mark.parametrize("case", PANELS, ids=named)
def test_a_panel_links_to_the_runbook_and_to_the_live_page(case: tuple[str, dict[str, Any]]) -> None:
    urls = [link["url"] for link in case[1]["links"]]
    assert urls[0].startswith("${service_url}/runbook")
    of_run = case[0] in ("offpolicy-run", "offpolicy-masks")  # whose sections are of one run each
    assert urls[1] == ("${service_url}/runs/${run}" if of_run else "${service_url}/")


@pytest.mark.parametrize("case", PANELS, ids=named)
def test_the_runbook_has_the_section_that_a_panel_links_to(case: tuple[str, dict[str, Any]]) -> None:
    section = case[1]["links"][0]["url"].partition("#")[2]
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert not section or section in headings


@cache
def recorded() -> set[str]:
    rules = [yaml.safe_load(path.read_text()) for path in (ROOT / "dashboards" / "prometheus").glob("*.rules.yaml")]
    groups = [group for document in rules for group in document["groups"]]
    return {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}


def families_in(expression: str) -> set[str]:
    bare = re.sub(r"\w+:\w+:\w+", "", expression)
    return set(re.findall(rf"\b{PREFIX}\w+", bare))


def exported(name: str) -> bool:
    bases = [name, *(name.removesuffix(suffix) for suffix in SUFFIXES)]
    return any(base.removeprefix(PREFIX) in BY_NAME for base in bases)


@pytest.mark.parametrize("case", PANELS, ids=named)
def test_a_panel_uses_families_that_are_exported_and_series_that_are_recorded(case: tuple[str, Any]) -> None:
    expressions = [target["expr"] for target in case[1]["targets"]]
    unknown = {name for text in expressions for name in families_in(text) if not exported(name)}
    assert unknown == set()
    assert {name for text in expressions for name in re.findall(r"\w+:\w+:\w+", text)} <= recorded()


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board["uid"])
def test_variables_choose_the_source_the_job_and_the_page(board: dict[str, Any]) -> None:
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert list(variables)[:2] == ["datasource", "job"]
    assert list(variables)[-1] == "service_url"
    assert variables["service_url"]["query"] == "http://127.0.0.1:8900"
    assert variables.get("window", {"query": "30m"})["query"].split(",").count("30m") == 1
    asked = set(re.findall(r"\$\{?(\w+)", str(board["panels"]))) - {"__range", "__data"}
    assert asked <= set(variables)


def test_rows_repeat_for_every_run_chosen_and_one_is_chosen_at_first() -> None:
    for board in BOARDS:
        repeated = {panel.get("repeat") for panel in board["panels"] if panel["type"] == "row"}
        run = next((row for row in board["templating"]["list"] if row["name"] == "run"), None)
        assert repeated == ({"run"} if board["uid"] in ("offpolicy-run", "offpolicy-masks") else {None})
        assert run is None or (run["multi"] and run["includeAll"] == (repeated == {None}))


def test_the_lines_of_the_fleet_are_the_default_thresholds_and_red_where_the_figure_alone_is_critical() -> None:
    fleet = next(board for board in BOARDS if board["uid"] == "offpolicy-fleet")
    steps = {p["title"]: p["fieldConfig"]["defaults"].get("thresholds", {}).get("steps") for p in panels(fleet)}
    lines = steps["In which run do engine and trainer disagree most?"]
    assert [(line["value"], line["color"]) for line in lines] == [(None, "green"), (0.01, "orange"), (0.03, "red")]
    lines = steps["How much of each batch is still effective?"]
    assert [(line["value"], line["color"]) for line in lines] == [(None, "text"), (0.3, "red"), (0.5, "orange")]


def test_a_run_draws_the_thresholds_in_force() -> None:
    board = next(board for board in BOARDS if board["uid"] == "offpolicy-run")
    panel = next(p for p in panels(board) if p["title"] == "How far are the policies apart?")
    asked = panel["targets"][-1]["expr"]
    assert 'offpolicy_alert_threshold{job=~"$job",run=~"$run",alert="MismatchKL",severity="warning"}' in asked
    assert '+ 0.01) and on () offpolicy_run_info{job=~"$job",run=~"$run",profile=~"dense_bf16"}' in asked
    assert '+ 0.03) and on () offpolicy_run_info{job=~"$job",run=~"$run",profile=~"dense_bf16"}' in asked
    drawn = {row["matcher"]["options"]: row["properties"][0]["value"] for row in panel["fieldConfig"]["overrides"]}
    assert drawn["/^MismatchKL warning$/"] == {"mode": "fixed", "fixedColor": "orange"}
    assert drawn["/^MismatchKL critical$/"] == {"mode": "fixed", "fixedColor": "red"}


@pytest.mark.parametrize("alert", ["ServerErrors", "BatchesRefused", "StoreSlow"])
def test_the_lines_of_the_service_are_the_thresholds_of_its_alerts(alert: str) -> None:
    rules = yaml.safe_load((ROOT / "dashboards" / "prometheus" / "service.rules.yaml").read_text())
    rows = [rule["expr"] for group in rules["groups"] for rule in group["rules"] if rule["alert"] == alert]
    found = [p for _, p in PANELS if p["links"][0]["url"].endswith(f"#{alert}") and "thresholdsStyle" in str(p)]
    steps = found[0]["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [step["value"] for step in steps[1:]] == sorted(float(expr.partition(" > ")[2]) for expr in rows)


def test_settings_that_descriptions_name_exist() -> None:
    named = set(re.findall(r"OFFPOLICY_[A-Z_]+", str(BOARDS)))
    assert named and named <= {Settings.variable(name) for name in Settings.model_fields}


def test_nothing_but_json_and_yaml_travels_in_the_wheel() -> None:
    suffixes = {path.suffix for path in (ROOT / "dashboards").rglob("*") if path.is_file()}
    assert suffixes <= {".json", ".yaml"}
