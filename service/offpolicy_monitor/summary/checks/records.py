"""The sums of a batch, of its gaps and of its methods: which there are, and how they bound each other.

What rows say of themselves is checked before. Knows no tables.
"""

from collections.abc import Sequence

import numpy as np

from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.checks.shard import Shard
from offpolicy_monitor.summary.faults import ROUNDING, UNDERFLOW, need, printable
from offpolicy_monitor.summary.gap import DEVIATION, GapSummary
from offpolicy_monitor.summary.method import MethodSummary, path_of, paths_of
from offpolicy_monitor.summary.records import Records
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.sums import Sums
from offpolicy_monitor.vocabulary import GAPS


def check_records(summary: StepSummary, shard: Shard) -> None:
    """Raise InvalidSummaryError where a record is missing or cannot stand beside the others."""
    need("batch" in summary.arrays, "batch", "required")
    _check_batch(summary.batch, shard)
    need(len(summary.gaps) in (1, len(GAPS)), "gaps", "must be one, or all three")
    for name, gap in summary.gaps.items():
        _check_gap(f"gaps/{name}", gap, summary)
    for name in _doubtful_methods(summary):
        need(path_of(name) in summary.arrays, printable(path_of(name)), "required")
        _check_method(printable(path_of(name)), MethodSummary.of(summary.arrays, name, summary.specs[name]), summary)
    if summary.cross:
        _check_cross(summary)


def _check_batch(batch: Sums, shard: Shard) -> None:
    filled = batch["sequences"] - batch["empty_sequences"]
    need(filled <= batch["tokens"], "batch/tokens", "are fewer than the sequences that are not empty")
    need(bool(filled) == bool(batch["tokens"]), "batch/empty_sequences", "leave no sequence for the tokens")
    ids = shard.sequence_ids
    need(ids is None or len(ids) == batch["sequences"], "batch/sequences", "are not as many as sequence_ids")


def _check_gap(path: str, gap: GapSummary, summary: StepSummary) -> None:
    sums, batch = gap.sums, summary.batch
    need(bool(gap.histograms), path.replace("gaps", "histograms"), "required")
    if not sums:
        need(not _counts(summary.arrays, path), path, "has sums of a gap without tokens")
        return
    need(sums["sequences"] > 0, f"{path}/sequences", "must not be 0 where there are tokens")
    filled = batch["sequences"] - batch["empty_sequences"]
    need(sums["sequences"] <= filled, f"{path}/sequences", "are more than those of the batch that are not empty")
    if DEVIATION in sums:
        _check_deviation(path, sums)


def _counts(arrays: Arrays, path: str) -> bool:
    """Whether anything of a record is not what it is before the first token."""
    return any(value and abs(value) != float("inf") for value in arrays.record(path).values())


def _check_deviation(path: str, sums: Sums) -> None:
    whole = sums["log_ratio_square"]
    rest = whole - sums["log_ratio"] * sums["log_ratio"] / sums["tokens"]
    near = abs(sums[DEVIATION] - rest) <= ROUNDING * whole + UNDERFLOW * sums["tokens"]
    need(near, f"{path}/{DEVIATION}", "is not what log_ratio and its square leave")


def _doubtful_methods(summary: StepSummary) -> Sequence[str]:
    """The methods that are to be looked at one by one: all where one is not there, else those that may be at fault."""
    names, arrays = tuple(summary.specs), summary.arrays
    paths, gaps = paths_of(names), [str((spec or {}).get("gap")) for spec in summary.specs.values()]
    if not names or not all(path in arrays for path in paths) or not all(gap in summary.gaps for gap in gaps):
        return names
    found = Records.at(arrays, paths)
    kept = np.array([[summary.gaps[gap].sums.get(unit, 0) for gap in gaps] for unit in ("tokens", "sequences")])
    fits = (found.rows(("tokens", "sequences")) == kept).all(0) & (kept[0] > 0)
    return [name for name, is_fit in zip(names, fits.tolist(), strict=True) if not is_fit]


def _check_method(path: str, method: MethodSummary, summary: StepSummary) -> None:
    of_gap = str((method.spec or {}).get("gap"))
    need(of_gap in summary.gaps, path, "is put on a gap that is not there")
    for name in ("tokens", "sequences"):
        here, there = method.sums.get(name, 0), summary.gaps[of_gap].sums.get(name, 0)
        need(here == there, f"{path}/{name}", f"are {here} where the gap {of_gap} has {there}")
    if not method.sums.get("tokens"):
        need(not _counts(summary.arrays, path), path, "drops tokens of a gap that has none")


def _check_cross(summary: StepSummary) -> None:
    least = min(gap.sums.get("tokens", 0) for gap in summary.gaps.values())
    inside = len(summary.gaps) == len(GAPS) and 0 < summary.cross["tokens"] <= least
    need(inside, "cross/tokens", "must be valid for all three gaps")
