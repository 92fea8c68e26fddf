"""python -m tests.detection: how soon each scenario is named, and how often a healthy run is.

Two processes by default. `--write` puts the tables into docs/detection.md.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Final, TypeVar

from tests.detection.false_alarms import add, count_run
from tests.detection.healthy import STEPS
from tests.detection.played import play
from tests.detection.report import Seen, false_alarm_table, scenario_table, verdict
from tests.detection.scenarios import SCENARIOS, STRENGTHS

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "detection.md"
BEGIN, END = "<!-- tables: written by make detection ARGS=--write -->\n", "<!-- end of tables -->"
BY_NAME: Final = {scenario.name: scenario for scenario in SCENARIOS}
#: Seeds of runs that thresholds were not chosen on.
HEALTHY_SEEDS, SCENARIO_SEEDS = 3_000_000, 4_000_000
Given = TypeVar("Given")
Result = TypeVar("Result")


def see(job: tuple[str, str, int]) -> Seen:
    """Play one scenario at one strength with one seed."""
    name, strength, seed = job
    outcome = play(BY_NAME[name], strength, seed)
    steps = outcome.first("warning"), outcome.first("critical")
    return Seen(name, strength, *steps, outcome.in_time, outcome.diagnosis)


def told(title: str, results: Iterable[Result], jobs: int) -> Iterator[Result]:
    """Pass results on, and tell on stderr how many there are and how long the rest will take."""
    began = time.monotonic()
    for done, result in enumerate(results, 1):
        left = (time.monotonic() - began) / done * (jobs - done)
        if sys.stderr.isatty():
            print(f"\r\x1b[2K{title} {done}/{jobs}, {left:.0f} s left", end="", file=sys.stderr, flush=True)
        elif done % 20 == 0 or done == jobs:
            print(f"{title} {done}/{jobs}, {left:.0f} s left", file=sys.stderr, flush=True)
        yield result
    if sys.stderr.isatty():
        print(file=sys.stderr)


def work(title: str, run: Callable[[Given], Result], jobs: list[Given], processes: int) -> list[Result]:
    """Results of all jobs, in order."""
    with ProcessPoolExecutor(processes) as pool:
        return list(told(title, pool.map(run, jobs), len(jobs)))


def main() -> None:
    """Print the tables, and write them into the page if asked to."""
    parser = argparse.ArgumentParser(prog="python -m tests.detection")
    parser.add_argument("--healthy-steps", type=int, default=20_480, help="at least so many of them (%(default)s)")
    parser.add_argument("--seeds", type=int, default=5, help="times that each scenario is played (%(default)s)")
    parser.add_argument("--scenarios", nargs="*", choices=BY_NAME, default=list(BY_NAME), help="these alone")
    parser.add_argument("--training", action="store_true", help="seeds from 0 on, to choose thresholds with")
    parser.add_argument("--processes", type=int, default=2, help="processes at work (%(default)s)")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/detection.md")
    args = parser.parse_args()
    first, onset = (0, 0) if args.training else (HEALTHY_SEEDS, SCENARIO_SEEDS)
    # A seed's jobs stand together: its healthy steps before the onset are measured once per process.
    plays = [(name, s, onset + n) for n, name, s in product(range(args.seeds), args.scenarios, STRENGTHS)]
    seen = work("scenarios", see, plays, args.processes)
    runs = list(range(first, first - (-args.healthy_steps // STEPS)))
    counted = add(work("healthy runs", count_run, runs, args.processes))
    chosen = [BY_NAME[name] for name in args.scenarios]
    parts = (scenario_table(chosen, seen), false_alarm_table(counted), verdict(chosen, seen, counted))
    text = "\n\n".join("\n".join(part) for part in parts)
    print(text)
    if args.write:
        head, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n{text}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
