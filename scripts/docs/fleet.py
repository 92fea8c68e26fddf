"""The tables of docs/scale.md on a fleet of runs, of what `python -m tests.benchmarks.fleet` has committed."""

import json
from pathlib import Path
from typing import Any, Final

from scripts.docs.markdown import table

COMMITTED: Final = Path(__file__).resolve().parents[2] / "tests" / "benchmarks" / "fleet" / "committed.json"


def by_workers() -> str:
    """A row for each number of workers: what came through, and what it took."""
    head = (
        "workers",
        "shards per second",
        "million tokens per second",
        "a post, ms: median",
        "99 of 100",
        "processors: service",
        "PostgreSQL",
        "ms of a processor per shard",
        "commits per shard",
        "memory, MiB",
    )
    return table(head, map(_row, _report()["workers"]))


def by_kind() -> str:
    """A row for each kind of run: what its shards waited, by the number of workers."""
    report = _report()
    waited = (f"{found['workers']} at work: ms, median; 99 of 100" for found in report["workers"])
    head = ("runs", "ranks of each", "a shard", *waited)
    rows = []
    for kind in report["fleet"]:
        posted = f"{kind['tokens']:,} tokens" + (", reduced" if kind["reduces"] else "")
        waits = (_waits(found["by kind"][kind["name"]]) for found in report["workers"])
        rows.append((str(kind["runs"]), str(kind["ranks"]), posted, *waits))
    return table(head, rows)


def _report() -> dict[str, Any]:
    return dict(json.loads(COMMITTED.read_text()))


def _row(found: dict[str, Any]) -> tuple[str, ...]:
    latency = found["latency, ms"]
    return (
        str(found["workers"]),
        f"{found['posts per second']:.0f}",
        f"{found['million tokens per second']:.1f}",
        f"{latency['p50']:.0f}",
        f"{latency['p99']:.0f}",
        f"{found['processors, service']:.2f}",
        f"{found['processors, PostgreSQL']:.2f}",
        f"{found['ms of a processor per post']:.1f}",
        f"{found['commits per post']:.2f}",
        f"{found['memory at most, MiB']:.0f}",
    )


def _waits(found: dict[str, float]) -> str:
    return f"{found['p50']:.0f}; {found['p99']:.0f}" if "p50" in found else "none"
