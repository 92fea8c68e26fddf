"""python -m tests.engines: real engines with planted faults, what is told of them, and when (`make engines`).

The trainer and its engine run in .venv-engines, the service in this environment. `--write` puts the tables into
docs/engines.md, and what they are made of into tests/engines/committed.json.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Final

from tests.engines.outcome import Outcome
from tests.engines.plan import CASES, Case
from tests.engines.play import PYTHON, ROOT, play
from tests.engines.report import tables
from tests.fixtures.service import service

PAGE: Final = ROOT / "docs" / "engines.md"
COMMITTED: Final = Path(__file__).with_name("committed.json")
BEGIN, END = "<!-- tables: written by make engines ARGS=--write -->\n", "<!-- end of tables -->"


def chosen(engines: Sequence[str], pattern: str) -> list[Case]:
    """Cases of these engines whose run matches a pattern."""
    return [case for case in CASES if case.engine in engines and re.search(pattern, case.run)]


def played(cases: Sequence[Case], trainers: int) -> list[Outcome]:
    """Play all cases against one service, so many trainers at a time; what is going on is told on stderr."""
    outcomes, began = list[Outcome](), time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        service(Path(folder)) as running,
        ThreadPoolExecutor(trainers) as pool,
    ):
        for outcome in pool.map(lambda case: play(case, running.url, Path(folder)), cases):
            outcomes.append(outcome)
            left = (time.monotonic() - began) / len(outcomes) * (len(cases) - len(outcomes))
            print(
                f"{len(outcomes)}/{len(cases)} {_line(outcome)}; {left / 60:.0f} min left", file=sys.stderr, flush=True
            )
    return outcomes


def _line(outcome: Outcome) -> str:
    first, last = outcome.first(), outcome.last
    told = f"{first.alert} at step {first.step}" if first else "no alert"
    return f"{outcome.engine}, {outcome.planted}: {told}, {last.name} {last.score:.2f}"


def main() -> int:
    """Print the tables, and write them if asked to."""
    parser = argparse.ArgumentParser(prog="python -m tests.engines")
    parser.add_argument("--engines", nargs="*", choices=("vllm", "ct2"), default=["vllm", "ct2"], help="these alone")
    parser.add_argument("-k", dest="pattern", default="", help="runs whose name matches this pattern alone")
    parser.add_argument("--trainers", type=int, default=2, help="runs that train at a time (%(default)s)")
    parser.add_argument("--json", type=Path, help="write what was seen into this file")
    parser.add_argument("--write", action="store_true", help=f"put it into {PAGE.name} and {COMMITTED.name}")
    args = parser.parse_args()
    if not PYTHON.exists():
        print("there is no .venv-engines; `make engines` makes it", file=sys.stderr)
        return 1
    began = time.monotonic()
    outcomes = played(chosen(args.engines, args.pattern), args.trainers)
    minutes = (time.monotonic() - began) / 60
    text = "\n".join([*tables(outcomes), f"- {len(outcomes)} runs in {minutes:.0f} minutes."])
    print(text)
    for file in [args.json, COMMITTED if args.write else None]:
        if file is not None:
            file.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n")
    if args.write:
        head, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n{text}\n\n{END}{rest.split(END)[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
