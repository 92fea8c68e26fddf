"""The rule files as they are checked in: rendered, accepted by promtool, complete, and about families that exist."""

import re
import subprocess
from functools import cache
from typing import Any

import pytest
import yaml
from offpolicy_monitor.alerts import RULES, WALL_CLOCK_RULES
from offpolicy_monitor.families import BY_NAME, PREFIX

from scripts.prometheus import rule_files
from tests.alerts.test_service_alerts import SCENES
from tests.fixtures.promtool import RULES as FOLDER
from tests.fixtures.tools import require_tool

RENDERED = rule_files("http://127.0.0.1:8900/")
NAME = re.compile(r"[a-z_]+:[a-zA-Z0-9_]+:[a-z0-9_]+|\boffpolicy_[a-z0-9_]+")
SAMPLE = re.compile(r"_(bucket|count|sum)$")
RECORD = re.compile(
    r"(run|instance|run_reason|run_gap|run_severity|instance_\w+|route|stage|encoding):offpolicy_\w+:\w+"
)


@cache
def rules(*names: str) -> list[dict[str, Any]]:
    """Those of some files, or of all. Nobody changes them."""
    documents = [yaml.safe_load(RENDERED[name]) for name in names or RENDERED]
    return [rule for document in documents for group in document["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("name", RENDERED)
def test_a_rule_file_is_what_the_rules_say(name: str) -> None:
    assert (FOLDER / name).read_text() == RENDERED[name]


def test_no_rule_file_is_left_over() -> None:
    assert {path.name for path in FOLDER.glob("*.rules.yaml")} == set(RENDERED)


def test_promtool_accepts_the_rule_files() -> None:
    files = sorted(FOLDER.glob("*.rules.yaml"))
    done = subprocess.run([require_tool("promtool"), "check", "rules", *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SUCCESS") == len(files) == 3


def test_every_rule_and_severity_is_an_alert_once() -> None:
    expected = [(rule.name, severity) for rule in (*RULES, *WALL_CLOCK_RULES) for severity in rule.severities]
    evidence, *alerts = rules("alerts.rules.yaml")
    found = [(rule["alert"], rule["labels"]["severity"]) for rule in alerts]
    assert found == expected and len(set(found)) == len(found)
    # First, so that what it mutes does not reach anyone before it.
    assert (evidence["alert"], evidence["labels"]) == ("Evidence", {"severity": "none"})


def test_an_alert_has_the_half_that_its_rule_is_of() -> None:
    halves = {rule.name: rule.half for rule in RULES}
    found = {rule["alert"]: rule["labels"].get("half") for rule in rules("alerts.rules.yaml")}
    assert {name: half for name, half in found.items() if name in halves} == halves


def test_every_alert_on_the_service_has_a_scene() -> None:
    found = {(rule["alert"], rule["labels"]["severity"]) for rule in rules("service.rules.yaml")}
    assert found == {key for scene in SCENES for key in scene.firing}


@pytest.mark.parametrize("rule", [rule for rule in rules() if "alert" in rule], ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_and_links_its_runbook(rule: dict[str, Any]) -> None:
    notes = rule["annotations"]
    assert set(notes) == {"summary", "description", "runbook_url", "page_url"}
    assert notes["runbook_url"] == f"http://127.0.0.1:8900/runbook#{rule['alert']}"
    page = "" if rule in rules("service.rules.yaml") else "runs/{{ $labels.run }}"
    assert notes["page_url"] == f"http://127.0.0.1:8900/{page}"
    assert "{{ $labels." in notes["summary"] and notes["description"].endswith((".", "slower."))


def test_links_follow_the_address_of_the_service() -> None:
    text = rule_files("https://monitor.example/rl")["alerts.rules.yaml"]
    assert "runbook_url: https://monitor.example/rl/runbook#MismatchKL\n" in text and "127.0.0.1" not in text


def test_rules_read_only_families_that_exist_and_names_that_are_recorded() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    families = {PREFIX + name for name in BY_NAME}
    read = {name for rule in rules() for name in NAME.findall(rule["expr"])}
    unknown = {name for name in read - recorded if name not in families and SAMPLE.sub("", name) not in families}
    assert unknown == set()


def test_recorded_names_say_level_metric_and_operation_and_are_recorded_once() -> None:
    recorded = [rule["record"] for rule in rules("recording.rules.yaml")]
    assert [name for name in recorded if not RECORD.fullmatch(name)] == []
    assert len(set(recorded)) == len(recorded)
