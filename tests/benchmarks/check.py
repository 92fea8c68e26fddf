"""`make bench-check`: whether a ratio has fallen by more than a fifth since the figures that are committed.

Ratios are compared with those of the same processor: vectors of another width serve numpy and torch more than what is
stored, judged and answered. Absolute figures are of one machine and are not compared. A ratio is the better the further
it is on the side of its goal, or where it has none on the side that is said to be better. Of the growth of a curve its
goal says all, and it has fallen where that is missed; so has a ratio that is no longer measured. Other work on the
machine makes a ratio worse and none better, so that the parts of what fell are measured again, AGAIN times at most, and
the better counts.
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
    before, found = json.loads(file.read_text()), report["rows"]
    committed = before["rows"]
    found = at_its_best(committed, found, partial(_measured, report.get("scale", "full")))
    of_one_scale = report.get("scale") == before.get("scale")  # a quick run has other sizes
    fallen = [*falls(committed, found).values(), *(missing(committed, found).values() if of_one_scale else ())]
    compared = len(_all_ratios(committed).keys() & _ratios(found).keys())
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
    before, now = _all_ratios(committed), _ratios(found)
    grown = {row["what"]: row for row in found if row.get("at") is not None and row.get("met") is False}
    return {
        what: f"{what}: grows by the power {row['ratio']:.3g} (goal {row['goal']})" for what, row in grown.items()
    } | {
        what: f"{what}: {ratio:.3g}, it was {before[what]:.3g} (goal {goal})"
        for what, (ratio, goal) in now.items()
        if what in before and _share(before[what], ratio, goal) < LEAST
    }


def missing(committed: Rows, found: Rows) -> dict[str, str]:
    """A line for each ratio that the same parts measured before, and do not now."""
    named, parts = {row["what"] for row in found}, {row["part"] for row in found if "part" in row}
    before = _all_ratios([row for row in committed if row.get("part") in parts])
    return {what: f"{what}: not measured, it was {ratio:.3g}" for what, ratio in before.items() if what not in named}


def _measured(scale: str, parts: Sequence[str]) -> Rows:
    from tests.benchmarks import parts as bench
    from tests.benchmarks.scale import FULL, QUICK

    set_up_malloc()
    return bench.as_json(bench.measured(parts, QUICK if scale == QUICK.name else FULL)[0])


def _share(before: float, now: float, goal: str) -> float:
    """How much of what was reached is reached now; above 1 where it is better."""
    better, worse = (now, before) if goal.startswith((">=", "more")) else (before, now)
    return better / worse if worse else 1.0


def _ratios(rows: Rows) -> dict[str, tuple[float, str]]:
    """What was measured -> its ratio and the goal, or `more` or `less`, which says which side is better."""
    sides = {row["what"]: row["goal"] or row.get("better") for row in rows}
    return {what: (ratio, side) for what, ratio in _all_ratios(rows).items() if (side := sides[what])}


def _all_ratios(rows: Rows) -> dict[str, float]:
    return {row["what"]: row["ratio"] for row in rows if row["ratio"] is not None and row.get("at") is None}


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.check", description="Compare ratios of two runs.")
    data = Path(__file__).resolve().parents[2] / ".data" / "bench.json"
    parser.add_argument("found", type=Path, nargs="?", default=data, help="JSON of `make bench` (default: the last)")
    parser.add_argument("--committed", type=Path, help="JSON to compare with (default: that of this processor)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
