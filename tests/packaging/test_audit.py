"""`make audit` succeeds only where everything was looked up; what cannot be is told, and no success."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import audit
from scripts.audit import FOUND, UNKNOWN, audited, judged

ROOT = Path(__file__).resolve().parents[2]
CLEAN = {"name": "one", "version": "1.0", "vulns": []}
BAD = {"name": "two", "version": "2.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"], "aliases": []}]}
SKIPPED = {"name": "three", "skip_reason": "not found on the service"}


@pytest.mark.parametrize(
    ("packages", "status", "lines"),
    [
        ([CLEAN], 0, ["f: 1 packages were audited"]),
        ([CLEAN, BAD], FOUND, ["two 2.0: PYSEC-1, mended in 2.1", "f: 2 packages were audited"]),
        ([CLEAN, SKIPPED], UNKNOWN, ["f: 1 packages were audited, 1 could not be: three"]),
        ([SKIPPED], UNKNOWN, ["f: nothing was audited: the advisory service knows none of 1 packages"]),
        ([], UNKNOWN, ["f: nothing was audited: the advisory service knows none of 0 packages"]),
    ],
)
def test_a_report_is_a_success_where_all_was_looked_up(packages: list[object], status: int, lines: list[str]) -> None:
    found = judged("f", {"dependencies": packages})
    assert (found.status, list(found.lines)) == (status, lines)


def test_a_program_that_ends_without_a_report_has_audited_nothing() -> None:
    said = [sys.executable, "-c", "import sys; sys.exit('no route to the advisory service')"]
    found = audited(said, "constraints.txt")
    assert found.status == UNKNOWN
    assert list(found.lines) == ["constraints.txt: nothing was audited: no route to the advisory service"]


def test_the_exit_status_of_the_command_is_the_worst_and_vulnerabilities_come_first() -> None:
    bad = "'engines' in ' '.join(sys.argv)"
    printed = f"import json, sys; print(json.dumps({{'dependencies': [{BAD!r}] if {bad} else []}}))"
    command = [sys.executable, str(ROOT / "scripts" / "audit.py"), sys.executable, "-c", printed]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == FOUND
    assert "two 2.0: PYSEC-1" in answer.stdout and "constraints.txt: nothing was audited" in answer.stdout
    assert audit.LOCKS == ("constraints.txt", "tests/engines/lock.txt")


def test_neither_the_tests_nor_lint_audit() -> None:
    command = ["make", "--dry-run", "lint", "test"]
    planned = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "audit" not in planned and "scripts.licences" in planned
