"""The core on one CPU thread: all gaps and presets over reading the bytes, and over padded eager metrics."""

import threading
from collections.abc import Sequence
from functools import cache
from itertools import count

import numpy as np
import torch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS, MethodRow, parse_rows

from tests.benchmarks.batches import LOGPROBS, Synthetic
from tests.benchmarks.padded import padded_metrics
from tests.benchmarks.rows import Row, at_least, at_most
from tests.benchmarks.scale import Scale
from tests.benchmarks.timing import NANOSECONDS, Progress, Work, seconds_by_turns

ONE_GAP = LOGPROBS[:2]
SAMPLING, OLD, CURRENT = LOGPROBS
#: Numerator and denominator of each gap; the older form, which imports this module too, names them nowhere.
GAPS = [(OLD, SAMPLING), (CURRENT, OLD), (CURRENT, SAMPLING)]
THRESHOLDS = 8
COMPILED_WITHIN = 180.0  # seconds


def compute_rows(scale: Scale, progress: Progress) -> list[Row]:
    """Nanoseconds per token; the ratio says how many times the floor, or how many times faster than the baseline."""
    source = Synthetic(scale.core_tokens)
    measurer = measurer_of(scale.compiled)
    whole, one_gap = source.batch(), source.batch(ONE_GAP)
    works: dict[str, Work] = {
        "floor": reading(source),
        "presets": lambda: measurer.measure(whole, PRESETS),
        "gaps": lambda: measurer.measure(whole, ()),
        "one gap": lambda: measurer.measure(one_gap, ()),
        "padded": padded(source, GAPS[:1]),
        "padded gaps": padded(source, GAPS),
    }
    seconds = seconds_by_turns(works, scale.repeats, progress)
    ns = {name: value / source.tokens * NANOSECONDS for name, value in seconds.items()}
    unit, floor, baseline = "ns per token", ns["floor"], ns["padded"]
    size = f"{source.tokens:,} tokens in {len(source.lengths)} sequences"
    presets = f"full set (all gaps, tables and {len(PRESETS)} presets)"
    return [
        Row("reading the bytes alone", floor, unit, note=f"torch.sum of three float32 arrays and the mask, {size}"),
        Row(f"{presets}, over reading", ns["presets"], unit, ns["presets"] / floor, at_most(70)),
        Row("all gaps without presets, over reading", ns["gaps"], unit, ns["gaps"] / floor, better="less"),
        Row(
            "padded eager metrics of one gap",
            baseline,
            unit,
            note=f"17 figures of [{len(source.lengths)}, {source.width}] float32",
        ),
        Row(f"{presets}: times faster than padded", ns["presets"], unit, baseline / ns["presets"], at_least(40)),
        Row(
            f"{presets}: times faster than padded of its three gaps",
            ns["presets"],
            unit,
            ns["padded gaps"] / ns["presets"],
            note=f"these take {ns['padded gaps']:.3g} ns per token",
            better="more",
        ),
        Row(
            "one gap without presets: times faster than padded",
            ns["one gap"],
            unit,
            baseline / ns["one gap"],
            better="more",
        ),
    ]


@cache
def measurer_of(compiled: bool) -> Measurer:
    """A measurer as a service has it, compiled some seconds after its start; eager where nothing can be compiled."""
    measurer, done = Measurer("cpu", threads=1), threading.Event()
    if compiled:
        measurer.compile_in_background(lambda problem: done.set())
        done.wait(COMPILED_WITHIN)
    return measurer


def reading(source: Synthetic) -> Work:
    """Read 13 bytes per token and do next to nothing with them."""
    mask = source.mask[: source.tokens // 8 * 8].view(np.int64)  # a sum of bytes would be bound by their widening
    tensors = [torch.from_numpy(array) for array in (*source.columns.values(), mask)]
    return lambda: [tensor.sum() for tensor in tensors]


def padded(source: Synthetic, gaps: Sequence[tuple[str, str]]) -> Work:
    """The baseline of each gap, on tensors that are already there."""
    columns = {name: torch.from_numpy(source.padded(source.columns[name])) for pair in gaps for name in pair}
    mask = torch.from_numpy(source.padded(source.mask)).float()
    return lambda: [padded_metrics(columns[above], columns[below], mask) for above, below in gaps]


def grid_rows(scale: Scale, progress: Progress) -> list[Row]:
    """A what-if grid in one evaluation, over an evaluation for each of its rows."""
    batch, measurer, grid = Synthetic(scale.grid_tokens).batch(), measurer_of(scale.compiled), what_if_grid()
    works: dict[str, Work] = {
        "together": lambda: measurer.evaluate(batch, grid),
        "one by one": lambda: [measurer.evaluate(batch, [row]) for row in grid],
    }
    seconds = seconds_by_turns(works, min(scale.repeats, 3), progress)
    ns = seconds["together"] / batch.tokens * NANOSECONDS
    ratio = seconds["one by one"] / seconds["together"]
    note = f"{batch.tokens:,} tokens; baseline: an evaluation per row"
    return [
        Row(f"what-if grid of {len(grid)} rows, over repeated passes", ns, "ns per token", ratio, at_least(40), note),
        again_row(measurer, scale, progress),
    ]


def again_row(measurer: Measurer, scale: Scale, progress: Progress) -> Row:
    """The presets on a small batch, whose rows were evaluated just before, over rows that nobody has evaluated yet."""
    batch, thresholds = Synthetic(2_000).batch(), count(1)

    def anew() -> None:
        measurer.evaluate(batch, [*PRESETS, *parse_rows([{"method": "mask", "upper": 2 + 1e-6 * next(thresholds)}])])

    again = [*PRESETS, *parse_rows([{"method": "mask", "upper": 2}])]
    works: dict[str, Work] = {"anew": anew, "again": lambda: measurer.evaluate(batch, again)}
    seconds = seconds_by_turns(works, 3 * scale.repeats, progress)
    what, note = (
        "evaluating 2,000 tokens by all presets again: times faster than by new rows",
        "the same number of rows",
    )
    return Row(what, seconds["again"] * 1e3, "ms", seconds["anew"] / seconds["again"], at_least(2), note)


def what_if_grid(thresholds: int = THRESHOLDS) -> tuple[MethodRow, ...]:
    """Ten methods, so many thresholds each."""
    steps = [0.01 * 1.5**index for index in range(thresholds)]
    rows: list[dict[str, object]] = []
    for step in steps:
        rows += [
            {"method": "truncate", "level": "token", "upper": 1 + step},
            {"method": "truncate", "level": "sequence", "upper": 1 + step},
            {"method": "mask", "level": "token", "lower": 1 - step, "upper": 1 + step},
            {"method": "mask", "level": "geometric", "lower": 1 - step, "upper": 1 + step},
            {"method": "ppo_clip", "level": "token", "lower": step, "upper": step},
            {"method": "ppo_clip", "level": "geometric", "lower": step / 10, "upper": step / 10},
            {"method": "opsm", "delta": step},
            {"method": "ipo", "threshold": step},
            {"method": "veto", "lower": step},
            {"method": "trm", "max": step, "mean": step / 10},
        ]
    return parse_rows(rows)
