"""`make fuzz`: every target for so many seconds, and a table of what was tried and what is new.

A reader is fuzzed by atheris, whose new ground guides it, in a process of its own; before it, of one that reads JSON,
every mean value in every place. The API is called by schemathesis, made from the OpenAPI document of a service with
data. A finding is a file in the corpus, which the tests replay from then on; the exit status is 1 where there is one.
"""

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.corpus import FOLDER
from tests.fuzz.mean import of_seeds
from tests.fuzz.targets import TARGETS, Target

API = "api"
#: Seconds that a process may take beyond those it fuzzes for: it imports torch.
GRACE = 120


class Found(NamedTuple):
    """What became of one target."""

    target: str
    executions: int
    findings: Sequence[str]


def main(arguments: Sequence[str]) -> int:
    """Fuzz the targets that are named, all by default."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join([*TARGETS, API])}")
    options = parser.parse_args(arguments)
    found = []
    for name in options.targets or [*TARGETS, API]:
        sys.stderr.write(f"{name}: {options.seconds} s ...\n")
        found.append(_api(options.seconds) if name == API else _reader(TARGETS[name], options.seconds))
    print(f"{'target':<12} {'executions':>10}  new findings")
    for row in found:
        print(f"{row.target:<12} {row.executions:>10}  {', '.join(row.findings) or '-'}")
    return 1 if any(row.findings for row in found) else 0


def _reader(target: Target, seconds: int) -> Found:
    folder = FOLDER / target.name
    folder.mkdir(parents=True, exist_ok=True)
    before = {path.name for path in folder.iterdir()}
    tried = _mean(target, folder) if target.is_json else 0
    command = [sys.executable, "-m", "tests.fuzz.guided", target.name, str(seconds), str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds + GRACE)
    counted = re.search(r"number_of_executed_units: (\d+)", ended.stderr + ended.stdout)
    new = sorted({path.name for path in folder.iterdir()} - before)
    if ended.returncode and not new:
        new = [f"status {ended.returncode}: {ended.stderr.strip().splitlines()[-1:]}"]
    return Found(target.name, tried + int(counted[1] if counted else 0), new)


def _mean(target: Target, folder: Path) -> int:
    """Every mean value in every place; how many that were. What raises is written down."""
    tried = 0
    for data in of_seeds(target.seeds()):
        tried += 1
        try:
            target.takes(data)
        except Exception:
            (folder / f"mean-{hashlib.sha256(data).hexdigest()[:16]}").write_bytes(data)
    return tried


def _api(seconds: int) -> Found:
    """schemathesis against a service in a process of its own."""
    from tests.fixtures.planted import TWO, plant
    from tests.fixtures.service import running_service

    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    program = str(Path(sys.executable).with_name("st"))
    with tempfile.TemporaryDirectory() as folder, running_service(Path(folder), OFFPOLICY_KEEP_WORST="3") as url:
        plant(url, TWO)
        options = [
            "--max-time",
            str(seconds),
            "--phases",
            "coverage,fuzzing",
            "--checks",
            checks,
            "--continue-on-failure",
        ]
        options += ["--request-timeout", "10", "--exclude-path", "/v1/events", "--warnings", "off"]
        ended = subprocess.run([program, "run", f"{url}/openapi.json", *options], capture_output=True, text=True)
    counted = re.search(r"([\d,]+) generated", ended.stdout)
    new = re.findall(r"^- (.+)$", ended.stdout, re.MULTILINE)
    if new:
        sys.stderr.write(ended.stdout)
    return Found(API, int(counted[1].replace(",", "") if counted else 0), new)


if __name__ == "__main__":
    warnings.simplefilter("error")
    sys.exit(main(sys.argv[1:]))
