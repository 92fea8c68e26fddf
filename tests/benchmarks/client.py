"""The trainer's side: what a step costs with the monitor and without, side by side, for each state of the service.

The loop waits for its device and then logs, on the CPU; the other loop makes one numpy copy of the same arrays instead,
kept for as long. The healthy service is the real one.
"""

import statistics
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from offpolicy_monitor import Monitor

from tests.benchmarks.rows import Row, at_most
from tests.benchmarks.scale import Scale
from tests.benchmarks.servers import service
from tests.benchmarks.timing import Progress
from tests.client.batches import batch, nbytes
from tests.client.conditions import CONDITIONS, Times, train

SEQUENCES, LENGTH = 128, 8192
WAIT = 0.05  # seconds per step
QUEUE = 128 << 20
MOST_OVER_COPY = 1.2
FIXED = 0.0003  # seconds that a call may cost whatever it copies: Python, with its caches cold after the wait


def client_rows(scale: Scale, progress: Progress, folder: Path) -> list[Row]:
    """Per condition: a step with the monitor over one without it, and `log` over one copy."""
    arrays = batch(SEQUENCES, LENGTH)
    rows = [Row("one batch of the loop", nbytes(arrays) / 2**20, "MiB", note=f"{SEQUENCES} x {LENGTH} tokens")]
    conditions = _conditions(folder)
    for index, (name, condition) in enumerate(conditions.items()):
        progress.step(index + 1, len(conditions), name)
        with condition() as url:
            rows += _rows(name, url, scale.repeats * 6)
    return rows


def _rows(name: str, url: str, steps: int) -> list[Row]:
    arrays = batch(SEQUENCES, LENGTH)
    monitor = Monitor(url, "bench", queue_bytes=QUEUE, timeout=2.0, attempt=0)
    without, with_it = Times(), Times()
    for _ in range(2):  # by turns, so that what else the machine does falls on both
        for times, which in ((without, None), (with_it, monitor)):
            found = train(which, arrays, steps // 2, WAIT, QUEUE)
            for kept, new in zip(vars(times).values(), vars(found).values(), strict=True):
                kept += new
    monitor.close(0.1)
    log, copy = statistics.median(with_it.log), statistics.median(without.copy)
    step, wait = statistics.median(with_it.step), statistics.median(without.wait)
    stats, said = monitor.stats, f"ratio of all but {FIXED * 1e3:g} ms over one copy of {copy * 1e3:.2f} ms"
    fate = ", ".join(f"{stats[count]} {count}" for count in ("logged", "sent", "dropped", "errors", "retries"))
    return [
        Row(
            f"{name}: a step with the monitor",
            step * 1e3,
            "ms",
            step / wait,
            note=f"without: {wait * 1e3:.1f} ms",
            better="less",
        ),
        Row(f"{name}: log()", log * 1e3, "ms", (log - FIXED) / copy, at_most(MOST_OVER_COPY), f"{said}; {fate}"),
    ]


def _conditions(folder: Path) -> Mapping[str, Callable[[], AbstractContextManager[str]]]:
    @contextmanager
    def real():  # pyrefly: ignore[unannotated-return]
        with service(folder, compiled=False) as running:
            running.wait()
            yield running.url

    return {"healthy, the real service": real, **CONDITIONS}
