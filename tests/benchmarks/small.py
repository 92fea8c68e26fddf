"""A small shard inside the service: from its body to the store over a commit of one row, and its measuring alone.

In one process and one thread, without HTTP and without rules; both sides write to the same file system with fsync. The
body is laid out beforehand.
"""

import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path

from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.pipeline.decoder import limits_of
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import ShardKey, ShardRecord, Store
from offpolicy_monitor.store.migrate import upgrade
from offpolicy_monitor.wire.decode import decode_batch
from offpolicy_monitor.wire.digest import content_digest
from offpolicy_monitor.wire.limits import Limits
from offpolicy_monitor.wire.message import Message

from tests.benchmarks.batches import Synthetic
from tests.benchmarks.body import Body
from tests.benchmarks.compute import measurer_of
from tests.benchmarks.ingest import STEPS
from tests.benchmarks.rows import Row, at_most
from tests.benchmarks.scale import Scale
from tests.benchmarks.timing import Progress, by_turns, timed

TOKENS = 2_000
MOST_MEASURING = 0.5  # ms
MILLISECONDS = 1e3
FULL_SYNC = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "CREATE TABLE plain (id INTEGER PRIMARY KEY, at REAL)",
)


def small_rows(scale: Scale, progress: Progress, folder: Path) -> list[Row]:
    """Milliseconds of both, each over its bound."""
    url, measurer = f"sqlite:///{folder / 'small.db'}", measurer_of(scale.compiled)
    upgrade(url)
    limits, source = limits_of(Settings()), Synthetic(TOKENS)
    with closing(Store.open(url)) as store, closing(sqlite3.connect(folder / "plain.db")) as plain:
        for statement in FULL_SYNC:
            plain.execute(statement)
        candidates = {
            "row": timed(partial(commit_a_row, plain)),
            "shard": lambda: timed(partial(store_a_shard, source.body(next(STEPS)), limits, measurer, store))(),
            "measuring": timed(partial(measurer.measure, source.batch(), PRESETS)),
        }
        seconds = by_turns(candidates, 10 * scale.repeats, progress)
    row, shard, alone = (seconds[name] * MILLISECONDS for name in ("row", "shard", "measuring"))
    what, note = f"a batch of {TOKENS:,} tokens", f"a commit takes {row:.3g} ms"
    return [
        Row(f"{what}, decoded to stored, over a commit of one row", shard, "ms", shard / row, at_most(5), note),
        Row(f"{what}, measured, over {MOST_MEASURING} ms", alone, "ms", alone / MOST_MEASURING, at_most(1)),
    ]


def commit_a_row(plain: sqlite3.Connection) -> None:
    """One row, fsynced."""
    with plain:
        plain.execute("INSERT INTO plain (at) VALUES (?)", (time.time(),))


def store_a_shard(body: Body, limits: Limits, measurer: Measurer, store: Store) -> None:
    """Everything that a shard of a step of its own goes through."""
    message = decode_batch(b"".join(body.buffers), body.media_type, limits)
    assert isinstance(message, Message)
    summary = measurer.measure(message.batch, PRESETS)
    key = ShardKey("small", 0, message.envelope.step, 0, 0)
    store.ingest([ShardRecord(key, 1, content_digest(message), summary, time.time(), minibatches=1)])
