"""`make bench`: one run, one table (what, this machine's figure, ratio, goal), the same as JSON.

Ratios are what counts: both sides of each are measured by turns in the same run. No part of the tests.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from offpolicy_monitor.server.memory import set_up_malloc

from tests.benchmarks.catalogue import catalogue_rows
from tests.benchmarks.client import client_rows
from tests.benchmarks.compute import compute_rows, grid_rows
from tests.benchmarks.gpu import gpu_rows
from tests.benchmarks.ingest import ingest_rows
from tests.benchmarks.judging import judging_rows
from tests.benchmarks.linear import linear_rows
from tests.benchmarks.machine import load, machine
from tests.benchmarks.older import older_rows
from tests.benchmarks.path import path_rows
from tests.benchmarks.primitives import primitive_rows
from tests.benchmarks.reduce import reduce_rows
from tests.benchmarks.rows import Row, table
from tests.benchmarks.scale import FULL, QUICK, Scale
from tests.benchmarks.scrape import scrape_rows
from tests.benchmarks.small import small_rows
from tests.benchmarks.stages import stage_rows
from tests.benchmarks.start import start_rows
from tests.benchmarks.storage import commit_rows, memory_rows
from tests.benchmarks.summaries import summary_rows
from tests.benchmarks.timing import Progress

DATA = Path(__file__).resolve().parents[2] / ".data"
Part = Callable[[Scale, Progress, Path], list[Row]]

PARTS: dict[str, Part] = {
    "core": lambda scale, progress, folder: compute_rows(scale, progress),
    "older": lambda scale, progress, folder: older_rows(scale, progress),
    "small": small_rows,
    "catalogue": lambda scale, progress, folder: catalogue_rows(scale, progress),
    "primitives": lambda scale, progress, folder: primitive_rows(scale, progress),
    "grid": lambda scale, progress, folder: grid_rows(scale, progress),
    "ingest": ingest_rows,
    "path": path_rows,
    "stages": stage_rows,
    "start": start_rows,
    "summaries": lambda scale, progress, folder: summary_rows(scale, progress),
    "commits": commit_rows,
    "scrape": scrape_rows,
    "memory": memory_rows,
    "client": client_rows,
    "reduce": lambda scale, progress, folder: reduce_rows(scale, progress),
    "judging": lambda scale, progress, folder: judging_rows(scale, progress),
    "linear": linear_rows,
    "gpu": lambda scale, progress, folder: gpu_rows(scale, progress),
}


def main() -> int:
    """Measure, print, write."""
    options = arguments().parse_args()
    scale = QUICK if options.quick else FULL
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the servers end with this process
    set_up_malloc()  # as the service does: a batch's tensors would be mapped and faulted anew each time
    before, began = load(), time.monotonic()
    rows, seconds = measured(options.only or list(PARTS), scale)
    report = {
        "scale": scale.name,
        "machine": machine(),
        "load_before": before,
        "load_after": load(),
        "seconds": round(time.monotonic() - began),
        "seconds_by_part": seconds,
        "rows": [row.as_json() for row in rows],
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=2) + "\n")
    sys.stdout.write(f"{table(rows)}\n\n{heading(report)}\nwritten to {options.json}\n")
    return 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.benchmarks", description="Measure the service and the core.")
    parser.add_argument("--quick", action="store_true", help="a rough run of less than half a minute")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="measure this part (may be repeated)")
    parser.add_argument("--json", type=Path, default=DATA / "bench.json", help="where to write the figures")
    return parser


def measured(parts: list[str], scale: Scale) -> tuple[list[Row], dict[str, int]]:
    """The rows of the parts, each in a folder of its own, and how many seconds each took."""
    progress, rows, seconds = Progress(), [], {}
    DATA.mkdir(exist_ok=True)
    for name in parts:
        progress.part(name)
        began = time.monotonic()
        with tempfile.TemporaryDirectory(dir=DATA, prefix="bench-") as folder:
            rows += PARTS[name](scale, progress, Path(folder))
        seconds[name] = round(time.monotonic() - began)
    progress.close()
    return rows, seconds


def heading(report: dict) -> str:
    about = report["machine"]
    return (
        f"{report['scale']} run of {report['seconds']} s on {about['processor']}, {about['cores']} cores, torch"
        f" {about['torch']}; load {report['load_before'][0]} before, {report['load_after'][0]} after"
    )


if __name__ == "__main__":
    sys.exit(main())
