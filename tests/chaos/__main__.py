"""python -m tests.chaos: faults under load, and what became of everything that was acknowledged (`make chaos`).

Exit status 1 where anything acknowledged is lost, doubled or wrong, a promise is broken, or a control finds nothing.
`--write` puts the rows that were played into docs/reliability.md and tests/chaos/committed.json, in the place of those
that were there; the others stay.
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from tests.chaos.players import played
from tests.chaos.report import notes, table
from tests.chaos.scenario import BOTH, Outcome, Scenario
from tests.chaos.scenarios import scenarios

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
#: How many scenarios of a quick run are played side by side.
BESIDE: Final = 6
COMMITTED: Final = Path(__file__).with_name("committed.json")
BEGIN, END = "<!-- table: written by make chaos ARGS=--write -->\n", "<!-- end of table -->"


def chosen(pattern: str, databases: Sequence[str], quick: bool) -> list[tuple[Scenario, str]]:
    """Scenarios whose name has the words, each with the databases that it is played on."""
    found = [s for s in scenarios() if pattern.lower() in f"{'control: ' if s.control else ''}{s.name}".lower()]
    return [(s, d) for s in found for d in s.played_on(quick) if d in databases]


def tell(outcome: Outcome) -> None:
    """What became of one, on stderr."""
    said = "; ".join(notes([outcome])) or "as promised"
    name = f"{outcome.scenario}, {outcome.database}"
    print(f"{name}: {said} ({outcome.seconds:.0f} s, {outcome.answers})", file=sys.stderr, flush=True)


def committed() -> list[Outcome]:
    """What the page tells, in the order of scenarios; of those alone that there are."""
    known = {outcome.row: outcome for outcome in (Outcome(**row) for row in json.loads(COMMITTED.read_text()))}
    rows = [(s.control, s.name, database) for s in scenarios() for database in s.databases]
    return [known[row] for row in rows if row in known]


def page_text(outcomes: Sequence[Outcome]) -> str:
    """The generated part of the page."""
    return "\n".join([*table(outcomes), "", *notes(outcomes)])


def as_json(outcomes: Sequence[Outcome]) -> str:
    """All that was seen."""
    return json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n"


def write(outcomes: Sequence[Outcome]) -> None:
    """Put outcomes in the place of older ones."""
    played_rows = {outcome.row for outcome in outcomes}
    COMMITTED.write_text(as_json([*(old for old in committed() if old.row not in played_rows), *outcomes]))
    COMMITTED.write_text(as_json(committed()))
    head, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{page_text(committed())}\n\n{END}{rest.split(END)[1]}")


def main() -> int:
    """Play, print the table, and write it if asked to."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("-k", dest="pattern", default="", help="scenarios whose name has these words alone")
    parser.add_argument("--database", choices=BOTH, action="append", help="this alone")
    parser.add_argument("--quick", action="store_true", help="few trials, less than three minutes")
    parser.add_argument("--beside", type=int, help="how many are played side by side (quick: 6, else one by one)")
    parser.add_argument("--list", action="store_true", help="name the scenarios")
    parser.add_argument("--json", type=Path, help="write what was seen into this file")
    parser.add_argument("--write", action="store_true", help=f"put the rows that are played into {PAGE.name}")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # and end what was started
    rows = chosen(args.pattern, args.database or BOTH, args.quick)
    if args.list:
        print(*(f"{'control: ' if s.control else ''}{s.name} ({database})" for s, database in rows), sep="\n")
        return 0
    began = time.monotonic()
    outcomes = played(rows, args.quick, args.beside or (BESIDE if args.quick else 1), tell)
    minutes = (time.monotonic() - began) / 60
    print(page_text(outcomes), f"- {len(outcomes)} rows in {minutes:.1f} minutes.", sep="\n")
    if args.json is not None:
        args.json.write_text(as_json(outcomes))
    if args.write:
        write(outcomes)
    return 1 if not outcomes or any(outcome.failed for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
