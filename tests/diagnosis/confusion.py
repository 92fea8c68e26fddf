"""python -m tests.diagnosis.confusion: what is named where what was planted, as a matrix a strength.

Batches are measured by the service's own measurer on the CPU. Thresholds were chosen on TRAINING seeds; what is
reported is of HELD_BACK ones.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence

from offpolicy_monitor.diagnosis import collect, diagnose
from offpolicy_monitor.measure import Measurer

from tests.diagnosis.generators import CLEAN, FAULTS, SIZES, STRENGTHS, generate

TRAINING = range(0, 1000)
HELD_BACK = range(1000, 2000)
NOTHING = "nothing"


def named(measurer: Measurer, fault: str, strength: str, tokens: int, seed: int) -> str:
    """The name of the first hypothesis for one generated batch."""
    made = generate(fault, strength, tokens, seed)
    found = diagnose(collect([measurer.measure(made.batch, (), made.origin)]))
    return found[0]["name"] if found else NOTHING


def confusion(strength: str, tokens: Sequence[int], seeds: Iterable[int], clean: int = 1) -> dict[str, Counter[str]]:
    """Planted -> how often each name came first; `clean` times as many clean batches as of each bug."""
    measurer = Measurer("cpu")
    counts: dict[str, Counter[str]] = {}
    for fault in (CLEAN, *FAULTS):
        counts[fault] = Counter()
        for seed in seeds:
            for repeat in range(clean if fault == CLEAN else 1):
                for size in tokens:
                    counts[fault][named(measurer, fault, strength, size, seed + 10_000 * repeat)] += 1
    return counts


def right(counts: dict[str, Counter[str]]) -> float:
    """The share of planted bugs that are named; clean batches aside."""
    rows = [(fault, row) for fault, row in counts.items() if fault != CLEAN]
    return sum(row[fault] for fault, row in rows) / sum(sum(row.values()) for _, row in rows)


def clean_share(counts: dict[str, Counter[str]]) -> float:
    """The share of clean batches for which noise or nothing came first."""
    row = counts[CLEAN]
    return (row[CLEAN] + row[NOTHING]) / sum(row.values())


def main() -> None:
    """Print the matrices."""
    parser = argparse.ArgumentParser(prog="python -m tests.diagnosis.confusion")
    parser.add_argument("--seeds", type=int, default=4, help="batches of each size (%(default)s)")
    parser.add_argument("--clean", type=int, default=10, help="times as many clean ones (%(default)s)")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--training", action="store_true", help="training seeds instead of held-back ones")
    args = parser.parse_args()
    seeds = (TRAINING if args.training else HELD_BACK)[: args.seeds]
    for size in args.sizes:
        for strength in STRENGTHS:
            counts = confusion(strength, [SIZES[size]], seeds, args.clean)
            print(f"{SIZES[size]} tokens, {strength}: {right(counts):.1%} named right, {clean_share(counts):.1%} clean")
            for fault, row in counts.items():
                print(f"  {fault:22s}" + "  ".join(f"{name} {number}" for name, number in row.most_common()))


if __name__ == "__main__":
    main()
