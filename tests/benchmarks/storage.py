"""The store and the memory: shards per second in groups over alone, and the peak of memory over the largest body."""

import itertools
import time
from collections.abc import Sequence
from pathlib import Path

from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.store import ShardKey, ShardRecord, Store
from offpolicy_monitor.store.migrate import upgrade
from offpolicy_monitor.summary import StepSummary

from tests.benchmarks.batches import BYTES_PER_TOKEN, Synthetic
from tests.benchmarks.ingest import connected
from tests.benchmarks.rows import Row, at_least, at_most
from tests.benchmarks.scale import MEBIBYTE, Scale
from tests.benchmarks.servers import service
from tests.benchmarks.timing import Progress, Work, seconds_by_turns

GROUP = 50
KIBIBYTE = 1024
SMALL_TOKENS = 256


def commit_rows(scale: Scale, progress: Progress, folder: Path) -> list[Row]:
    """Shards per second that the store commits fifty at a time, over one at a time."""
    url = f"sqlite:///{folder / 'commits.db'}"
    upgrade(url)
    summary = Measurer("cpu", threads=1).measure(Synthetic(SMALL_TOKENS).batch(), PRESETS)
    steps, store = itertools.count(), Store.open(url)
    works: dict[str, Work] = {
        "group": lambda: store.ingest(records(summary, steps)),
        "alone": lambda: [store.ingest([record]) for record in records(summary, steps)],
    }
    seconds = seconds_by_turns(works, scale.commit_rounds, progress)
    store.close()
    rate, ratio = GROUP / seconds["group"], seconds["alone"] / seconds["group"]
    return [Row(f"commits in groups of {GROUP}, over one by one", rate, "shards/s", ratio, at_least(3))]


def records(summary: StepSummary, steps: "itertools.count[int]") -> Sequence[ShardRecord]:
    """Fifty shards, each of a step of its own."""
    keys = [ShardKey("bench", 0, next(steps), 0, 0) for _ in range(GROUP)]
    return [ShardRecord(key, 1, key.step.to_bytes(16, "little"), summary, time.time()) for key in keys]


def memory_rows(scale: Scale, progress: Progress, folder: Path) -> list[Row]:
    """What two large bodies in turn add to the resident memory of an idle service, at its peak, over one of them."""
    source = Synthetic(scale.body_bytes // BYTES_PER_TOKEN)
    what = "peak memory over the largest body"
    if not Path("/proc/self/status").exists():
        return [Row(what, None, "MiB", note="needs /proc")]
    with service(folder, scale.compiled) as target, connected(target, connections=1) as load:
        target.wait()
        idle = resident(target.pid, "VmRSS")
        bodies = [source.body(step) for step in range(2)]
        load.seconds(bodies)
        added = resident(target.pid, "VmHWM") - idle
    size = bodies[0].nbytes
    note = f"a body of {size / MEBIBYTE:,.0f} MiB; the idle service has {idle / MEBIBYTE:,.0f} MiB"
    return [Row(what, added / MEBIBYTE, "MiB", added / size, at_most(3), note)]


def resident(pid: int, field: str) -> int:
    """A field of the process's status, bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in lines)
    return int(values[field].split()[0]) * KIBIBYTE
