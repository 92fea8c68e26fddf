"""The threat model names tests that there are, and SECURITY.md no address that could go stale."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_every_threat_is_held_by_tests_that_there_are() -> None:
    _, _, table = (ROOT / "docs" / "threat-model.md").read_text().partition("## Threats")
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15 and all(len(row) == 3 for row in rows)
    for threat, _, held_by in rows:
        named = re.findall(r"`(tests/\S+)::(test_\w+)`", held_by)
        assert named, threat
        for file, name in named:
            assert re.search(rf"^def {name}\b", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{name}"


def test_the_page_on_reporting_leads_to_pages_that_there_are_and_names_nobody() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (ROOT / link).is_file(), link
    assert "private vulnerability reporting" in text and "@" not in text
