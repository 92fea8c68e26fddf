"""`make bench-check`: whether a ratio has fallen by more than a fifth since the figures that are committed.

Ratios are compared with those of the same processor: vectors of another width serve numpy and torch more than what is
stored, judged and answered. Absolute figures are of one machine and are not compared. A ratio that has a goal is the
better the further it is on that goal's side; one without a goal has no better side and is not compared. Of the growth
of a curve its goal says all, and it has fallen where that is missed. Other work on the machine makes a ratio worse and
none better, so that the parts of what fell are measured again, AGAIN times at most, and the better counts.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from offpolicy_monitor.server.memory import set_up_malloc

#: A run of each processor, by its name.
COMMITTED: Final = Path(__file__).with_name("committed")
#: Least share of a committed ratio that must be reached again; the inverse where less is better.
LEAST: Final = 0.8
AGAIN: Final = 2

Rows = Sequence[Mapping[str, Any]]
#: Rows of some parts, measured anew.
Measure = Callable[[Sequence[str]], Rows]


def main() -> int:
    """Say which ratios fell; 1 where any did."""
    options = _arguments().parse_args()
    report = json.loads(options.found.read_text())
    file = options.committed or committed_of(report["machine"]["processor"])
    if not file.is_file():
        sys.stderr.write(
            f"no run of this processor is committed: copy {options.found} to {file}, or name one to compare\n"
        )
        return 2
    committed, found = json.loads(file.read_text())["rows"], report["rows"]
    found = at_its_best(committed, found, partial(_measured, report.get("scale", "full")))
    fallen = falls(committed, found).values()
    compared = len(_ratios(committed).keys() & _ratios(found).keys())
    sys.stdout.write("".join(f"{line}\n" for line in fallen))
    sys.stdout.write(f"{compared} ratios compared, {len(fallen)} fell by more than {1 - LEAST:.0%}\n")
    return 1 if fallen or not compared else 0


def committed_of(processor: str) -> Path:
    """The file of a processor's figures, which may not be there."""
    return COMMITTED / f"{'-'.join(re.findall('[a-z0-9]+', processor.lower()))}.json"


def at_its_best(committed: Rows, found: Rows, measure: Measure) -> Rows:
    """What was found, of parts in which a ratio fell the better of that and of what is measured again."""
    for _ in range(AGAIN):
        fallen = falls(committed, found)
        parts = list(dict.fromkeys(row["part"] for row in found if row["what"] in fallen and "part" in row))
        if not parts:
            break
        sys.stdout.write("".join(f"{line}\n" for line in fallen.values()) + f"again: {', '.join(parts)}\n")
        sys.stdout.flush()
        now = _ratios(again := measure(parts))
        before = _ratios(found)
        better = {what for what in now if what in before and _share(before[what][0], *now[what]) > 1}
        better |= {row["what"] for row in again if row.get("at") is not None and row.get("met")}
        found = [*(row for row in found if row["what"] not in better), *(row for row in again if row["what"] in better)]
    return found


def falls(committed: Rows, found: Rows) -> dict[str, str]:
    """A line for each ratio of both runs that is more than a fifth worse than it was, by what was measured.

    And for each growth of the later one that misses its goal.
    """
    before, now = _ratios(committed), _ratios(found)
    grown = {row["what"]: row for row in found if row.get("at") is not None and row.get("met") is False}
    return {
        what: f"{what}: grows by the power {row['ratio']:.3g} (goal {row['goal']})" for what, row in grown.items()
    } | {
        what: f"{what}: {now[what][0]:.3g}, it was {ratio:.3g} (goal {goal})"
        for what, (ratio, goal) in before.items()
        if what in now and _share(ratio, now[what][0], goal) < LEAST
    }


def _measured(scale: str, parts: Sequence[str]) -> Rows:
    from tests.benchmarks import parts as bench
    from tests.benchmarks.scale import FULL, QUICK

    set_up_malloc()
    return bench.as_json(bench.measured(parts, QUICK if scale == QUICK.name else FULL)[0])


def _share(before: float, now: float, goal: str) -> float:
    """How much of what was reached is reached now; above 1 where it is better."""
    better, worse = (now, before) if goal.startswith(">=") else (before, now)
    return better / worse if worse else 1.0


def _ratios(rows: Rows) -> dict[str, tuple[float, str]]:
    """What was measured -> its ratio and the goal that says which side is better."""
    compared = (row for row in rows if row["ratio"] is not None and row["goal"] and row.get("at") is None)
    return {row["what"]: (row["ratio"], row["goal"]) for row in compared}


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.check", description="Compare ratios of two runs.")
    data = Path(__file__).resolve().parents[2] / ".data" / "bench.json"
    parser.add_argument("found", type=Path, nargs="?", default=data, help="JSON of `make bench` (default: the last)")
    parser.add_argument("--committed", type=Path, help="JSON to compare with (default: that of this processor)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
