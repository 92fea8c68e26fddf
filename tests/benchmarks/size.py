"""`python -m tests.benchmarks.size`: what 1,000 steps take in a database, as they came, a day and a month later.

Steps of one shard of 6,400 tokens and of eight of 128,000, all presets measured; and what a year of a step per minute
takes by these. On SQLite, and on the PostgreSQL whose URL is given: an empty database of its own. No part of the tests.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from offpolicy_monitor.batch import Origin
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.server.judge import RulesJudge
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import ShardKey, ShardRecord, Store
from offpolicy_monitor.store.migrate import upgrade
from offpolicy_monitor.store.space import vacuum
from offpolicy_monitor.store.write.settle import KEPT
from offpolicy_monitor.summary import StepSummary

from tests.benchmarks.batches import Synthetic

#: Tokens of a shard, shards of a step.
KINDS = ((6_400, 1), (128_000, 8))
#: Steps after which the same shards come again.
DIFFERENT = 4
DAY, MONTH = 86_400.0, 30 * 86_400.0
#: Days that a step of a year is as it came, is settled, is thin.
DAYS = (1, 29, 335)
STEPS_PER_DAY = 24 * 60
BLOCK_STEPS = Settings.model_fields["block_steps"].default
HEADING = ("as it came", "a day later", "a month later", "GB per year")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser("python -m tests.benchmarks.size", description="Bytes that steps take at rest.")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--postgres", metavar="URL", help="an empty database; it is left full")
    options = parser.parse_args()
    headings = "".join(f"  {heading:>13}" for heading in HEADING)
    sys.stdout.write(f"{'KB per step':11}  {'tokens':>9}  {'shards':>6}{headings}\n")
    for tokens, shards in KINDS:
        summaries = [measured(tokens, shards, seed) for seed in range(DIFFERENT)]
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{Path(folder) / 'size.db'}"
            row("SQLite", tokens, shards, sizes(url, summaries, options.steps))
        if options.postgres:
            row("PostgreSQL", tokens, shards, sizes(options.postgres, summaries, options.steps))
    return 0


def measured(tokens: int, shards: int, seed: int = 0) -> list[StepSummary]:
    """Summaries of the shards of a step, which come from as many engines."""
    measurer = Measurer("cpu", threads=1)
    return [
        measurer.measure(
            Synthetic(tokens, seed=shards * seed + shard).batch(), PRESETS, Origin(1, shard, {"engine": f"e{shard}"})
        )
        for shard in range(shards)
    ]


def sizes(url: str, summaries: Sequence[Sequence[StepSummary]], steps: int) -> list[float]:
    """KB per step, as it came, a day and a month later, beside a run's newest steps, which keep their summaries."""
    upgrade(url)
    few, many = (grown(url, summaries, KEPT + count) for count in (0, steps))
    return [(size - of_newest) / steps / 1000 for size, of_newest in zip(many, few, strict=True)]


def grown(url: str, summaries: Sequence[Sequence[StepSummary]], steps: int) -> list[int]:
    """What a run of so many steps adds to the database, bytes: as it came, a day and a month later."""
    before, now = vacuum(url, full=True), time.time()
    with closing(Store.open(url, lambda: now, RulesJudge())) as store:
        for step in range(steps):
            keep(store, steps, step, summaries[step % len(summaries)], now)
    added = [vacuum(url, full=True) - before]
    for age in (DAY, MONTH):
        with closing(Store.open(url, partial(float, now + age + 1))) as store:
            store.upkeep.tidy(DAY, BLOCK_STEPS)
            store.upkeep.thin(MONTH)
        added.append(vacuum(url, full=True) - before)
    return added


def keep(store: Store, steps: int, step: int, summaries: Sequence[StepSummary], now: float) -> None:
    """Store the shards of a step."""
    for shard, summary in enumerate(summaries):
        digest = step.to_bytes(8, "little") + shard.to_bytes(8, "little")
        key = ShardKey(f"size-{len(summaries)}-{steps}", 0, step, 0, shard)
        store.ingest([ShardRecord(key, len(summaries), digest, summary, now, minibatches=1)])


def row(database: str, tokens: int, shards: int, found: Sequence[float]) -> None:
    """One line of the table."""
    year = sum(days * size for days, size in zip(DAYS, found, strict=True)) * STEPS_PER_DAY / 1e6
    figures = "".join(f"  {figure:13.1f}" for figure in (*found, year))
    sys.stdout.write(f"{database:10}  {tokens:9,}  {shards:6}{figures}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
