"""`python -m tests.benchmarks.large`: fill SQLite and PostgreSQL, then ask, post, look after and delete. No test.

By default one run of 100,000 steps among 200 of 2,000, thinned as by default: 4 GB and some minutes for each database.
A database that `--filled` names is not filled, and is changed.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from offpolicy_monitor.store import Store

from tests.benchmarks.large.asked import of_pages, of_posts, of_routes, of_scrapes, serving
from tests.benchmarks.large.figures import Figure, table
from tests.benchmarks.large.fill import Run, fill, months
from tests.benchmarks.large.kept import of_deletion, of_upkeep, sizes
from tests.benchmarks.large.upgraded import of_upgrade
from tests.benchmarks.machine import machine
from tests.benchmarks.parts import DATA
from tests.benchmarks.servers import Served
from tests.fixtures.postgres import Cluster
from tests.fixtures.tools import require_tool

DATABASES = ("sqlite", "postgres")
#: As an administrator would set a server up that has 4 GB for itself, durable.
SERVER = ("listen_addresses=", "max_connections=60", "shared_buffers=512MB", "max_wal_size=4GB")
PARTS = ("upgrade", "routes", "pages", "scrapes", "posts", "upkeep", "deletion")


def main() -> int:
    """Measure, print, write."""
    options = arguments().parse_args()
    wanted = months(options.runs, options.steps, options.long)
    report: dict[str, Any] = {"machine": machine(), "runs": [[run.name, run.steps] for run in wanted[:2]]}
    DATA.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=DATA, prefix="large-"))
    try:
        for name in options.database or DATABASES:
            report[name] = of_database(name, options, wanted, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    sys.stdout.write(f"written to {options.json}\n")
    return 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.large", description="Measure large databases.")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=2_000, help="of each of them")
    parser.add_argument("--long", type=int, default=100_000, help="steps of the one long run beside them")
    parser.add_argument("--database", action="append", choices=DATABASES, help="this alone")
    parser.add_argument("--filled", metavar="URL", help="a database that has these runs")
    parser.add_argument(
        "--older", metavar="DIR", type=Path, help="sources of the release before: measure an upgrade too"
    )
    parser.add_argument("--only", action="append", choices=PARTS, help="measure this (may be repeated)")
    parser.add_argument("--json", type=Path, default=DATA / "large.json", help="where to write the figures")
    return parser


def of_database(name: str, options: argparse.Namespace, wanted: Sequence[Run], folder: Path) -> dict[str, Any]:
    """All that is measured of one."""
    if options.filled:
        return measured(options.filled, options, wanted, folder)
    if name == "sqlite":
        return measured(filled(f"sqlite:///{folder / 'large.db'}", wanted), options, wanted, folder)
    place = Path(tempfile.mkdtemp(prefix="offpolicy-pg-"))
    cluster = Cluster(place, require_tool("initdb").parent, SERVER)
    try:
        cluster.administer("CREATE DATABASE large")
        return measured(filled(cluster.url("large"), wanted), options, wanted, folder)
    finally:
        cluster.stop()
        shutil.rmtree(place)


def filled(url: str, wanted: Sequence[Run]) -> str:
    """The database, once it has the runs, looked after as a leader does."""
    began = time.monotonic()
    fill(url, wanted)
    say(f"filled in {time.monotonic() - began:.0f} s")
    began = time.monotonic()
    with closing(Store.open(url)) as store:
        while store.upkeep.put_into_columns():
            pass
    say(f"figures put into columns in {time.monotonic() - began:.0f} s")
    return url


def measured(url: str, options: argparse.Namespace, wanted: Sequence[Run], folder: Path) -> dict[str, Any]:
    """The parts that are wanted, in the order in which they change the database more and more."""
    chosen, long, short = options.only or PARTS, wanted[0], wanted[1]
    found: dict[str, Any] = {"MB": sizes(url), "load before": os.getloadavg()[0]}
    say("MB: " + ", ".join(f"{name} {size:,.0f}" for name, size in found["MB"].items() if size >= 1))
    if "upgrade" in chosen and options.older is not None and not url.startswith("sqlite"):
        found["upgrade"] = told("upgrade", of_upgrade(url, wanted, folder, options.older))
    works: dict[str, tuple[str, Callable[[Served], list[Figure]]]] = {
        f"routes of {long.name}": ("routes", lambda service: of_routes(service, long)),
        f"routes of {short.name}": ("routes", lambda service: of_routes(service, short)),
        "pages": ("pages", lambda service: of_pages(service, long, wanted[3:10])),
        "scrapes": ("scrapes", lambda service: of_scrapes(service, wanted[:200])),
        "posts": ("posts", lambda service: [of_posts(service, long)]),
    }
    for name, (part, work) in works.items():
        if part in chosen:
            began = time.perf_counter()
            with serving(url, folder) as service:
                ready = 1e3 * (time.perf_counter() - began)
                start = Figure("a start of the service, until it is ready", ready, [ready])
                found[name] = told(name, [start, *work(service)])
    if "upkeep" in chosen:
        found["upkeep"] = told("upkeep", of_upkeep(url, folder, wanted[2]))
    if "deletion" in chosen:
        gone = [figure for run in (short, long) for figure in of_deletion(url, folder, run, wanted[2])]
        found["deletion"] = told("deletion", gone)
    found["load after"] = os.getloadavg()[0]
    return found


def told(name: str, figures: Sequence[Figure]) -> list[dict[str, Any]]:
    """The figures for the report; printed as they come."""
    say(f"\n{name}\n{table(figures)}")
    return [figure.as_json() for figure in figures]


def say(text: str) -> None:
    """At once: the whole takes minutes."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
