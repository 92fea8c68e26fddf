"""A shard's summary after it was measured: writing, reading and merging it, each over copying its buffer once."""

from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.summary import StepSummary, from_bytes, merge_all, to_bytes

from tests.benchmarks.batches import Synthetic
from tests.benchmarks.catalogue import ORIGIN, full_batch
from tests.benchmarks.rows import Row, at_most
from tests.benchmarks.scale import Scale
from tests.benchmarks.timing import Progress, Work, by_turns, timed

SIZES = (5_000, 1_000_000)
#: Shards of a step that are merged at once.
SHARDS = 16
MILLISECONDS = 1e3
#: 1 ms and 0.1 ms in copies of the buffer, which take 0.045 ms on a quiet machine.
GOALS = {"write": at_most(22), "read": at_most(2.2), "merge": at_most(2.2)}
WHAT = {"write": "writing a summary", "read": "reading a summary", "merge": "merging a summary with others"}


def summary_rows(scale: Scale, progress: Progress) -> list[Row]:
    """Milliseconds, and copies of the buffer that take as long; every array of the contract, all presets."""
    measurer = Measurer("cpu", threads=1)
    rows = []
    for tokens in SIZES:
        summary = measurer.measure(full_batch(Synthetic(tokens)), PRESETS, ORIGIN)
        stored = to_bytes(summary)
        candidates = {name: timed(work) for name, work in works(summary, stored).items()}
        seconds = by_turns(candidates, 10 * scale.repeats, progress, min)
        for name, what in WHAT.items():
            taken = seconds[name] / (SHARDS - 1 if name == "merge" else 1)
            note = f"{len(stored):,} bytes stored" if name == "write" else ""
            ratio = taken / seconds["copy"]
            rows.append(Row(f"{what} of {tokens:,} tokens", taken * MILLISECONDS, "ms", ratio, GOALS[name], note))
    return rows


def works(summary: StepSummary, stored: bytes) -> dict[str, Work]:
    """What is timed."""
    return {
        "copy": lambda: summary.arrays.buffer.copy(),
        "write": lambda: to_bytes(summary),
        "read": lambda: from_bytes(stored),
        "merge": lambda: merge_all([summary] * SHARDS),
    }
