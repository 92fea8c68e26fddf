"""Known vulnerabilities of everything that is locked, by pip-audit, in an environment of its own (`make audit`).

pip-audit itself succeeds where its service knows none of the packages; here what could not be looked up is a failure.
No part of the tests, since what is known changes without a change of this repository.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
LOCKS: Final = ("constraints.txt", "tests/engines/lock.txt")
#: How long one answer of the advisory service, and all of one file, may take, seconds.
ANSWER, ALL = 15, 600
FOUND: Final = 1
UNKNOWN: Final = 2


@dataclass
class Audit:
    """What came of one file: packages that were looked up, those that were not, and a line for each vulnerability."""

    file: str
    looked_up: int = 0
    skipped: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    failure: str = ""

    @property
    def status(self) -> int:
        """0 only where every package was looked up and nothing is known of any."""
        if self.found:
            return FOUND
        return UNKNOWN if self.skipped or self.failure or not self.looked_up else 0

    @property
    def lines(self) -> Sequence[str]:
        """What to say."""
        if not self.looked_up:
            why = self.failure or f"the advisory service knows none of {len(self.skipped)} packages"
            return [f"{self.file}: nothing was audited: {why}"]
        more = f", {len(self.skipped)} could not be: {', '.join(self.skipped)}" if self.skipped else ""
        return [*self.found, f"{self.file}: {self.looked_up} packages were audited{more}"]


def judged(file: str, report: Mapping[str, Any]) -> Audit:
    """What a report of pip-audit comes to."""
    audit = Audit(file)
    for package in report["dependencies"]:
        if "skip_reason" in package:
            audit.skipped.append(package["name"])
            continue
        audit.looked_up += 1
        for known in package["vulns"]:
            mended = ", ".join(known["fix_versions"]) or "no version yet"
            audit.found.append(f"{package['name']} {package['version']}: {known['id']}, mended in {mended}")
    return audit


def audited(command: Sequence[str], file: str) -> Audit:
    """Ask for one file. What pip-audit cannot do is a failure, told by its last line."""
    options = ["--requirement", str(ROOT / file), "--no-deps", "--disable-pip", "--format", "json"]
    options += ["--timeout", str(ANSWER), "--progress-spinner", "off"]
    try:
        answer = subprocess.run([*command, *options], capture_output=True, text=True, timeout=ALL)
        return judged(file, json.loads(answer.stdout))
    except subprocess.TimeoutExpired:
        return Audit(file, failure=f"no end after {ALL} s")
    except ValueError:
        return Audit(file, failure=(answer.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1])


def main(*command: str) -> int:
    """Audit every file by `command`; the exit status is the worst: 1 for what is known, 2 for what is not."""
    began = time.monotonic()
    audits = [audited(command, file) for file in LOCKS]
    for audit in audits:
        print("\n".join(audit.lines))
    print(f"audited in {time.monotonic() - began:.0f} s")
    statuses = {audit.status for audit in audits}
    return FOUND if FOUND in statuses else max(statuses)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
