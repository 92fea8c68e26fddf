"""`python -m tests.benchmarks.size`: what 1,000 steps take in a database, as they came and when they have been tidied.

Steps of one shard of 6,400 tokens and of eight of 128,000, all presets measured. On SQLite, and on the PostgreSQL whose
URL is given: an empty database of its own. No part of the tests.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from offpolicy_monitor.batch import Origin
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.server.judging import RulesJudge
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import ShardKey, ShardRecord, Store
from offpolicy_monitor.store.migrate import upgrade
from offpolicy_monitor.store.space import vacuum
from offpolicy_monitor.summary import StepSummary

from tests.benchmarks.batches import Synthetic

#: Tokens of a shard, shards of a step.
KINDS = ((6_400, 1), (128_000, 8))
DAY = 86_400.0


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser("python -m tests.benchmarks.size", description="Bytes that steps take at rest.")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--postgres", metavar="URL", help="an empty database; it is left full")
    options = parser.parse_args()
    sys.stdout.write(f"{'database':10}  {'tokens':>9}  {'shards':>6}  {'KB a step':>9}  {'a day later':>11}\n")
    for tokens, shards in KINDS:
        summaries = measured(tokens, shards)
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{Path(folder) / 'size.db'}"
            row("SQLite", tokens, shards, sizes(url, summaries, options.steps))
        if options.postgres:
            row("PostgreSQL", tokens, shards, sizes(options.postgres, summaries, options.steps))
    return 0


def measured(tokens: int, shards: int) -> list[StepSummary]:
    """Summaries of shards that come from as many engines."""
    measurer, batch = Measurer("cpu", threads=1), Synthetic(tokens).batch()
    return [measurer.measure(batch, PRESETS, Origin(1, shard, {"engine": f"e{shard}"})) for shard in range(shards)]


def sizes(url: str, summaries: Sequence[StepSummary], steps: int) -> tuple[float, float]:
    """KB a step, as it came and a day later."""
    upgrade(url)
    empty, now = vacuum(url), time.time()
    store = Store.open(url, lambda: now, RulesJudge())
    for step in range(steps):
        for shard, summary in enumerate(summaries):
            digest = step.to_bytes(8, "little") + shard.to_bytes(8, "little")
            key = ShardKey(f"size-{len(summaries)}", 0, step, 0, shard)
            store.ingest([ShardRecord(key, len(summaries), digest, summary, now, minibatches=1)])
    store.close()
    fresh = vacuum(url)
    store = Store.open(url, lambda: now + DAY + 1)
    store.upkeep.tidy(DAY, Settings.model_fields["block_steps"].default)
    store.close()
    return (fresh - empty) / steps / 1000, (vacuum(url, full=True) - empty) / steps / 1000


def row(database: str, tokens: int, shards: int, found: tuple[float, float]) -> None:
    """One line of the table."""
    fresh, old = found
    sys.stdout.write(f"{database:10}  {tokens:9,}  {shards:6}  {fresh:9.1f}  {old:11.1f}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
