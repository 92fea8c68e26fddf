"""`python -m tests.benchmarks.fleet`: 200 runs, one of them of 512 ranks, against one, two and four workers. No test.

Each number of workers gets a PostgreSQL of its own, that syncs, and the same clients, in two processes; all of them on
this machine. Fails where a shard that was acknowledged is not stored, or one is stored twice.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy import NullPool, create_engine, text

from tests.benchmarks.fleet.ranks import FLEET
from tests.benchmarks.fleet.watched import most, session_memory, used
from tests.benchmarks.large.__main__ import SERVER
from tests.benchmarks.machine import load, machine
from tests.benchmarks.parts import DATA
from tests.benchmarks.servers import Served
from tests.fixtures.postgres import Cluster
from tests.fixtures.service import COMMAND, served, wait_until_ready
from tests.fixtures.tools import require_tool

COMMITTED: Final = Path(__file__).with_name("committed.json")
#: Processes of clients, and connections of each.
PARTS, CONNECTIONS = 2, 24
STORED = "SELECT count(*) FROM shards"


def main() -> int:
    """Measure, print, write."""
    options = arguments().parse_args()
    DATA.mkdir(exist_ok=True)
    report: dict[str, Any] = {"machine": machine(), "load before": load(), "seconds": options.seconds}
    report["fleet"] = [vars(kind) for kind in FLEET]
    report["workers"] = []
    for workers in options.workers or (1, 2, 4):
        found = measured(workers, options.helpers, options.warm, options.seconds)
        report["workers"].append(found)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    sys.stdout.write(f"written to {options.json}\n")
    return 0 if all(found["stored"] == found["acknowledged"] for found in report["workers"]) else 1


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.fleet", description="Load workers as a fleet does.")
    parser.add_argument("--workers", type=int, action="append", help="so many (may be repeated; 1, 2 and 4)")
    parser.add_argument("--helpers", type=int, default=2, help="processes beside one worker alone (2)")
    parser.add_argument("--warm", type=float, default=20.0, help="seconds before anything is counted")
    parser.add_argument("--seconds", type=float, default=60.0, help="for which posts are counted")
    parser.add_argument("--json", type=Path, default=DATA / "fleet.json", help="where to write the figures")
    return parser


def measured(workers: int, helpers: int, warm: float, seconds: float) -> dict[str, Any]:
    """A server and a service of so many workers, both new, under the load of the fleet."""
    folder = Path(tempfile.mkdtemp(prefix="offpolicy-fleet-"))
    folder.chmod(0o755)
    (folder / "cluster").mkdir()
    cluster = Cluster(folder / "cluster", require_tool("initdb").parent, SERVER)
    try:
        cluster.administer("CREATE DATABASE fleet")
        url = cluster.url("fleet")
        command = [*COMMAND, "serve", "--migrate", *(["--workers", str(workers)] if workers > 1 else []), "--port"]
        settings = {"DATABASE_URL": url, "DEVICE": "cpu", "LOG_LEVEL": "warning", "MEASURE_PROCESSES": str(helpers)}
        with served(command, folder / "service.log", {f"OFFPOLICY_{k}": v for k, v in settings.items()}) as running:
            wait_until_ready(running.url, running.process)
            target = Served(running.port, running.process, running.log)
            target.wait()
            found = under_load(target, cluster, url, warm, seconds)
        return {"workers": workers, **found}
    finally:
        cluster.stop()
        shutil.rmtree(folder)


def under_load(target: Served, cluster: Cluster, url: str, warm: float, seconds: float) -> dict[str, Any]:
    """What clients saw, and what the service and its database used for it."""
    clients = [started(target.url, part, warm, seconds) for part in range(PARTS)]
    for client in clients:
        assert client.stdout is not None and client.stdout.readline() == "ready\n"
    before = used(target.pid, cluster.server.pid, url)
    with most(lambda: session_memory(target.pid)) as memory:
        for client in clients:
            assert client.stdin is not None
            client.stdin.write("go\n")
            client.stdin.flush()
        seen = [json.loads(client.communicate()[0]) for client in clients]
    after = used(target.pid, cluster.server.pid, url) - before
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        stored = connection.execute(text(STORED)).scalar_one()
    acknowledged = sum(each["acknowledged"] for each in seen)
    latencies: dict[str, list[float]] = {kind.name: [] for kind in FLEET}
    for each in seen:
        for name, values in each["latencies"].items():
            latencies[name] += values
    every = [value for values in latencies.values() for value in values]
    return {
        "acknowledged": acknowledged,
        "stored": stored,
        "posts per second": len(every) / seconds,
        "million tokens per second": sum(each["tokens"] for each in seen) / seconds / 1e6,
        "latency, ms": quantiles(every),
        "by kind": {name: {"posts": len(values), **quantiles(values)} for name, values in latencies.items()},
        "sent again": dict(sum((Counter(each["again"]) for each in seen), Counter[str]())),
        "processors, service": after.service / (warm + seconds),
        "processors, PostgreSQL": after.server / (warm + seconds),
        "ms of a processor per post": 1e3 * after.service / acknowledged,
        "commits per post": after.commits / acknowledged,
        "log, KB per post": after.log / acknowledged / 1e3,
        "database, KB per post": after.size / acknowledged / 1e3,
        "memory at most, MiB": max(memory),
        "load": load(),
    }


def started(url: str, part: int, warm: float, seconds: float) -> "subprocess.Popen[str]":
    """One process of clients; it waits for a line before it posts."""
    options = map(str, (part, PARTS, CONNECTIONS, warm, seconds))
    command = [sys.executable, "-m", "tests.benchmarks.fleet.clients", url, *options]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """The median and the 99th percentile; nothing of fewer than two."""
    if len(values) < 2:
        return {}
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": cuts[49], "p99": cuts[98]}


if __name__ == "__main__":
    sys.exit(main())
