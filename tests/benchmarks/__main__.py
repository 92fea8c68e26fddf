"""`make bench`: one run, one table (what, this machine's figure, ratio, goal), the same as JSON.

Ratios are what counts: both sides of each are measured by turns in the same run. No part of the tests.
"""

import argparse
import json
import signal
import sys
import time
from pathlib import Path

from offpolicy_monitor.server.memory import set_up_malloc

from tests.benchmarks.machine import load, machine
from tests.benchmarks.parts import DATA, PARTS, as_json, measured
from tests.benchmarks.rows import table
from tests.benchmarks.scale import FULL, QUICK


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
        "rows": as_json(rows),
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=2) + "\n")
    sys.stdout.write(
        f"{table([row for own in rows.values() for row in own])}\n\n{heading(report)}\nwritten to {options.json}\n"
    )
    return 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.benchmarks", description="Measure the service and the core.")
    parser.add_argument("--quick", action="store_true", help="a rough run of less than half a minute")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="measure this part (may be repeated)")
    parser.add_argument("--json", type=Path, default=DATA / "bench.json", help="where to write the figures")
    return parser


def heading(report: dict) -> str:
    about = report["machine"]
    return (
        f"{report['scale']} run of {report['seconds']} s on {about['processor']}, {about['cores']} cores, torch"
        f" {about['torch']}; load {report['load_before'][0]} before, {report['load_after'][0]} after"
    )


if __name__ == "__main__":
    sys.exit(main())
