"""What each stage of a small shard takes of a processor: decoding, digest, measuring, what is made before it is stored,
and the transaction with its rules and its commit.

In one process and one thread, one shard after the other, each a step of its own; a service does the same between other
work, and takes up to a half more of it. Bodies are laid out beforehand.
"""

import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path

from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.pipeline.decoder import limits_of
from offpolicy_monitor.pipeline.record import origin_of
from offpolicy_monitor.server.judge import RulesJudge
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import Receipt, ShardKey, ShardRecord, Store, prepared
from offpolicy_monitor.store.migrate import upgrade
from offpolicy_monitor.wire.decode import decode_batch
from offpolicy_monitor.wire.digest import content_digest
from offpolicy_monitor.wire.limits import Limits
from offpolicy_monitor.wire.message import Message

from tests.benchmarks.batches import Synthetic
from tests.benchmarks.body import Body
from tests.benchmarks.compute import measurer_of
from tests.benchmarks.ingest import STEPS
from tests.benchmarks.rows import Row
from tests.benchmarks.scale import Scale
from tests.benchmarks.timing import Progress

SIZES = (2_000, 16_384)
WARM = 30  # shards that come before those that are timed
MICROSECONDS = 1e6
STAGES = (
    "decoding",
    "its digest",
    "measuring",
    "its stored form, and what headline figures are read off",
    "its transaction, rules and commit included",
)


def stage_rows(scale: Scale, progress: Progress, folder: Path) -> list[Row]:
    """Microseconds of each stage, the least of some hundred shards."""
    url, limits, rows = f"sqlite:///{folder / 'stages.db'}", limits_of(Settings()), []
    upgrade(url)
    with closing(Store.open(url, judge=RulesJudge())) as store:
        for tokens in SIZES:
            source, found = Synthetic(tokens), list[list[float]]()
            for number in range(WARM + scale.stage_shards):
                progress.step(number, WARM + scale.stage_shards)
                body = source.body(next(STEPS), minibatches=1)
                found.append(seconds_of(body, limits, measurer_of(scale.compiled), store))
            least = [min(of_stage) * MICROSECONDS for of_stage in zip(*found[WARM:], strict=True)]
            what = f"a shard of {tokens:,} tokens"
            rows += [Row(f"{what}, {stage}", of_stage, "us") for stage, of_stage in zip(STAGES, least, strict=True)]
            rows.append(Row(f"{what}, all of these", sum(least), "us"))
    return rows


def seconds_of(body: Body, limits: Limits, measurer: Measurer, store: Store) -> list[float]:
    """Seconds of a processor that each of STAGES takes."""
    plain = b"".join(body.buffers)
    at = [time.thread_time()]
    message = decode_batch(plain, body.media_type, limits)
    assert isinstance(message, Message)
    at.append(time.thread_time())
    digest = content_digest(message)
    at.append(time.thread_time())
    summary = measurer.measure(message.batch, PRESETS, origin_of(message))
    at.append(time.thread_time())
    key, dtypes = ShardKey("stages", 0, message.envelope.step, 0, 0), dict(message.batch.dtypes)
    record = prepared(ShardRecord(key, 1, digest, summary, time.time(), minibatches=1, dtypes=dtypes))
    at.append(time.thread_time())
    [receipt] = store.ingest([record])
    at.append(time.thread_time())
    assert isinstance(receipt, Receipt) and receipt.step_completed
    return [after - before for before, after in pairwise(at)]
