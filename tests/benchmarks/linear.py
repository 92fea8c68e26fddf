"""How costs grow: measuring by tokens, sequences and method rows, a step and its reading by the steps before it.

A curve is one row a size, all sizes by turns, the quickest of each; its last row says by which power of the size the
cost grew from the size before: 1 is linear, 0 is no growth. `scripts/docs/plots.py` draws them.
"""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.server.judge import RulesJudge
from offpolicy_monitor.store import ShardRecord, Store
from offpolicy_monitor.store.migrate import upgrade

from tests.benchmarks.batches import Synthetic
from tests.benchmarks.compute import measurer_of, what_if_grid
from tests.benchmarks.rows import Row, at_most
from tests.benchmarks.scale import MILLION, Scale
from tests.benchmarks.timing import Progress, Work, by_turns, timed
from tests.fixtures.shards import make_record

#: Rows of a grid are ten a threshold.
THRESHOLDS: Final = 10
ROWS_TOKENS: Final = 131_072
#: Steps stored at once to make a history.
GROUP: Final = 100
TIMES: Final = 20
MILLISECONDS: Final = 1e3
#: The power by which a cost may grow.
LINEAR: Final = at_most(1.1)
FIELD: Final = "gaps.mismatch.k3"


def linear_rows(scale: Scale, progress: Progress, folder: Path) -> list[Row]:
    """The curves, one after another."""
    measurer, sizes = measurer_of(scale.compiled), scale.linear

    def measuring(tokens: int, sequences: int | None = None) -> Work:
        batch = Synthetic(tokens, sequences=sequences).batch()
        return lambda: measurer.measure(batch, PRESETS)

    grid, of_rows = what_if_grid(THRESHOLDS), Synthetic(ROWS_TOKENS).batch()
    works: Mapping[str, Mapping[int, Work]] = {
        f"measuring {MILLION:,} tokens, by their sequences": {
            size: measuring(MILLION, size) for size in sizes["sequences"]
        },
        f"measuring {ROWS_TOKENS:,} tokens, by method rows": {
            size: partial(measurer.measure, of_rows, grid[:size]) for size in sizes["presets"]
        },
        "measuring, by tokens": {size: measuring(size) for size in sizes["tokens"]},
    }
    rows = []
    for what, by_size in works.items():
        candidates = {str(size): timed(work) for size, work in by_size.items()}
        found = by_turns(candidates, min(scale.repeats, 5), progress, min)
        rows += curve(what, {int(size): seconds for size, seconds in found.items()})
    return [*rows, *history_rows(sizes["history"], progress, folder)]


def curve(what: str, seconds: Mapping[int, float]) -> list[Row]:
    """A row a size, ascending; the last one with its growth."""
    (before, least), (last, most) = list(seconds.items())[-2:]
    power = math.log(most / least) / math.log(last / before)
    rows = [Row(what, taken * MILLISECONDS, "ms", at=size) for size, taken in seconds.items()]
    note = f"ratio: the power by which it grew from {before:,} to {last:,}; 1 is linear"
    return [*rows[:-1], replace(rows[-1], ratio=power, goal=LINEAR, note=note)]


def history_rows(sizes: tuple[int, ...], progress: Progress, folder: Path) -> list[Row]:
    """One more step of a run, stored and judged, and two readings, the first ones after it, by how many there are."""
    url, steps = f"sqlite:///{folder / 'history.db'}", count()
    upgrade(url)
    found: dict[str, dict[int, float]] = {}
    with closing(Store.open(url, judge=RulesJudge())) as store:
        like, there = make_record(minibatches=1, received_at=time.time()), 0
        store.ingest([following(like, steps)])
        for size in sizes:
            for begun in range(there, size, GROUP):
                progress.step(begun, size, "history")
                store.ingest([following(like, steps) for _ in range(min(GROUP, size - begun))])
            there = size
            works: dict[str, Callable[[], object]] = {
                "storing and judging a step, by the steps before it": lambda: store.ingest([following(like, steps)]),
                "the series of a figure after a step, by all steps": lambda: store.series(like.key.run, FIELD),
                "a page of steps after a step, by all steps": lambda: store.steps(like.key.run, limit=GROUP),
            }
            taken: dict[str, list[float]] = {}
            for what in list(works) * TIMES:
                store.ingest([following(like, steps)])  # what was read before is known no longer
                taken.setdefault(what, []).append(timed(works[what])())
            for what, seconds in taken.items():
                found.setdefault(what, {})[size] = min(seconds)
    return [row for what, seconds in found.items() for row in curve(what, seconds)]


def following(like: ShardRecord, steps: "count[int]") -> ShardRecord:
    """The same shard as the next step."""
    step = next(steps)
    return replace(like, key=like.key._replace(step=step), digest=step.to_bytes(16, "little"))
