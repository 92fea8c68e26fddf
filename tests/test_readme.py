"""The README is true: its snippet runs against a real service and prints what the README shows."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from offpolicy_monitor.alerts import RULES, WALL_CLOCK_RULES

from tests.fixtures.service import running_service

README = Path(__file__).resolve().parent.parent / "README.md"


def test_the_snippet_prints_what_the_readme_shows(tmp_path: Path) -> None:
    snippet, shown = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", README.read_text(), re.DOTALL)[0]
    with running_service(tmp_path) as url:
        script = snippet.replace("http://127.0.0.1:8900", url)
        printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert printed.stdout == shown, printed.stderr


@pytest.mark.parametrize("target", ["run", "test"])
def test_the_readme_names_targets_that_make_has(target: str) -> None:
    makefile = (README.parent / "Makefile").read_text()
    assert f"make {target}" in README.read_text() and re.search(rf"^{target}: .*## ", makefile, re.MULTILINE)


def test_the_readme_says_how_many_rules_there_are() -> None:
    rules, on_the_clock = re.findall(r"(\d+) rules on a run's steps and (\w+) on its clock", README.read_text())[0]
    assert (int(rules), on_the_clock) == (len(RULES), {1: "one", 2: "two", 3: "three"}[len(WALL_CLOCK_RULES)])
