"""The service stands still, as its trainer sees it: `log` is quick, the queue bounded, what is dropped counted."""

import os
import signal
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from offpolicy_monitor import Monitor

from tests.chaos.audit import Stored
from tests.chaos.contents import SHARDS, Key, sequences
from tests.chaos.scenario import SQLITE, Scenario
from tests.chaos.stage import Stage
from tests.reference import COLUMNS

#: Batches while the service stands still, and bytes of the queue: some batches fit, most do not.
BATCHES, QUEUE = 400, 64 << 10
LOG_WITHIN = 0.001
RUN = "trainer"


def black_hole(stage: Stage) -> None:
    """A trainer goes on while the service is stopped; afterwards all that was kept arrives, each batch once."""
    stage.start()
    url = f"http://127.0.0.1:{stage.port}"
    with Monitor(url, RUN, queue_bytes=QUEUE, timeout=1.0, attempt=0) as monitor:
        seconds = [second for trial in stage.trials() for second in one_stop(stage, monitor, trial * BATCHES)]
        stats = monitor.stats
    judged(stage, seconds, stats)
    stored = sum(row.name == RUN for row in Stored.read(stage.url).shards)
    stage.promise(stored == stats["sent"], f"{stored} shards are stored of {stats['sent']} sent")


def judged(stage: Stage, seconds: Sequence[float], stats: Mapping[str, float]) -> None:
    """What each `log` took, and what the monitor counted."""
    median = statistics.median(seconds)
    stage.measured.update({"median of log, ms": round(1000 * median, 3), "dropped, batches": stats["dropped"]})
    stage.promise(median < LOG_WITHIN, f"log took {median:.4f} s")
    stage.promise(stats["logged"] == stats["sent"] + stats["dropped"], f"not all is accounted for: {dict(stats)}")
    stage.promise(stats["dropped"] > 0 and not stats["errors"], f"nothing was dropped, or refused: {dict(stats)}")


def one_stop(stage: Stage, monitor: Monitor, first: int) -> list[float]:
    """What each `log` takes while the service stands still, in seconds."""
    assert stage.process is not None
    seconds = list[float]()
    os.kill(stage.process.pid, signal.SIGSTOP)
    try:
        for step in range(first, first + BATCHES):
            seconds.append(log(stage, monitor, Key(RUN, step, 0)))
            stage.promise(monitor.stats["pending_bytes"] <= QUEUE, "the queue is longer than its bound")
            time.sleep(0.005)
    finally:
        os.kill(stage.process.pid, signal.SIGCONT)
    with stage.recovering():
        pass
    stage.promise(monitor.flush(60.0), "what was kept did not arrive")
    return seconds


def log(stage: Stage, monitor: Monitor, key: Key) -> float:
    """Seconds that it took to log a shard."""
    sent = sequences(key)
    arrays: dict[str, Any] = {
        name: np.array([x for s in sent for x in s.logprobs[name]], np.float32) for name in COLUMNS
    }
    arrays["advantages"] = np.array([s.advantage for s in sent], np.float32)
    arrays["lengths"] = np.array([len(s.mask) for s in sent])
    stage.ledger.sent.add(key)
    began = time.perf_counter()
    monitor.log(step=key.step, shard=0, shards=SHARDS, **arrays)
    return time.perf_counter() - began


SCENARIOS = (Scenario("service stands still, seen from the trainer", black_hole, (SQLITE,), full=3),)
