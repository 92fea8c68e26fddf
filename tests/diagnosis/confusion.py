"""python -m tests.diagnosis.confusion: what is named where what was planted, as a matrix a size and strength.

Batches are measured by the service's own measurer on the CPU. Thresholds were chosen on TRAINING seeds; what is
reported is of HELD_BACK ones. `--write` puts the tables into docs/diagnosis.md.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from offpolicy_monitor.diagnosis import Evidence, Limits, collect, diagnose
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.summary.step import merge_all

from tests.diagnosis.generators import CLEAN, FAULTS, SIZES, STRENGTHS, Generated, generate_steps
from tests.fixtures.fused import fused_measurer

TRAINING: Final = range(0, 1_000)
HELD_BACK: Final = range(2_000_000, 2_001_000)
NOTHING: Final = "nothing"
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "diagnosis.md"
BEGIN, END = "<!-- matrices: written by make diagnosis ARGS=--write -->\n", "<!-- end of matrices -->"
#: Size -> batches of each bug and strength, and clean batches; large ones take a second each.
BATCHES: Final = {"small": (40, 400), "middle": (20, 160), "large": (4, 30)}

#: Of a run that has set its own: batches are named from a k3 on at which the usual rules do not warn yet.
LIMITS: Final = Limits(2e-3, 1e-2)

Counts = Mapping[str, Counter[str]]


def named(measurer: Measurer, fault: str, strength: str, tokens: int, seed: int) -> str:
    """The name of the first hypothesis for the generated gradient steps of a fault."""
    found = diagnose(evidence(measurer, *generate_steps(fault, strength, tokens, seed)))
    return str(found[0]["name"]) if found else NOTHING


def evidence(measurer: Measurer, *made: Generated) -> Evidence:
    """The evidence of gradient steps."""
    steps = [merge_all([measurer.measure(batch, (), origin) for batch, origin in step.parts]) for step in made]
    return collect(steps, limits=LIMITS)


def confusion(faults: Iterable[str], strength: str, tokens: int, seeds: Iterable[int]) -> dict[str, Counter[str]]:
    """Planted -> how often each name came first."""
    measurer, seeds = fused_measurer(), list(seeds)
    return {fault: Counter(named(measurer, fault, strength, tokens, seed) for seed in seeds) for fault in faults}


def right(counts: Counts) -> float:
    """The share of planted bugs that are named; clean batches aside."""
    rows = [(fault, row) for fault, row in counts.items() if fault != CLEAN]
    return sum(row[fault] for fault, row in rows) / sum(row.total() for _, row in rows)


def clean_share(row: Counter[str]) -> float:
    """The share of clean batches for which noise or nothing came first."""
    return (row[CLEAN] + row[NOTHING]) / row.total()


def report(sizes: Sequence[str], seeds: range) -> Iterator[str]:
    """Markdown, a table at a time as it is measured: one per size and strength, with the clean batches under medium."""
    for size in sizes:
        planted, clean = BATCHES[size]
        for strength in STRENGTHS:
            counts = confusion(FAULTS, strength, SIZES[size], seeds[:planted])
            title = f"{SIZES[size]:,} tokens, {strength}: {right(counts):.1%} named right"
            if strength == "medium":
                counts |= confusion([CLEAN], strength, SIZES[size], seeds[:clean])
                title += f", {clean_share(counts[CLEAN]):.1%} of clean batches left in peace"
            yield f"**{title}**\n\n{table(counts)}"


def table(counts: Counts) -> str:
    """Planted, how many times, how many of them right, and what was named instead."""
    lines = ["| planted | batches | named right | named instead |", "|---|---|---|---|"]
    for fault, row in counts.items():
        others = ", ".join(f"`{name}` {number}" for name, number in row.most_common() if name != fault)
        lines.append(f"| `{fault}` | {row.total()} | {row[fault]} | {others} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the matrices, and write them into the page if asked to."""
    parser = argparse.ArgumentParser(prog="python -m tests.diagnosis.confusion")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--training", action="store_true", help="training seeds instead of held-back ones")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/diagnosis.md")
    args = parser.parse_args()
    tables = []
    for text in report(args.sizes, TRAINING if args.training else HELD_BACK):
        print(text, flush=True)
        tables.append(text)
    if args.write:
        head, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(head + BEGIN + "\n" + "\n".join(tables) + "\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
