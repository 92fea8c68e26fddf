"""python -m tests.benchmarks.replicas: two replicas under Ray Serve over one process, each on PostgreSQL, by turns.

MiB of bodies per second at three sizes, by the same clients on connections that stay open, and the memory of a replica.
Prints the table of docs/ray.md, which holds for the machine that it is measured on.
"""

import argparse
import itertools
import json
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.benchmarks.batches import BYTES_PER_TOKEN, Synthetic
from tests.benchmarks.load import Load
from tests.benchmarks.servers import BATCHES
from tests.benchmarks.timing import Progress, by_turns
from tests.chaos.play import Clusters, workplace
from tests.chaos.scenarios.ray import resident
from tests.fixtures.postgres import Cluster
from tests.fixtures.rays import replicas, under_ray
from tests.fixtures.service import service

MEBIBYTE: Final = 1 << 20
#: MiB of a body -> how many are posted in a round.
SIZES: Final[Mapping[int, int]] = {1: 128, 4: 48, 16: 16}
IN_FLIGHT: Final = 8
#: Seconds that compiling takes where nothing is cached, and answers in a row that say so of all replicas.
COMPILED_WITHIN: Final = 400.0
ASKED: Final = 10
STEPS: Final = itertools.count()
SETTINGS: Final = {"OFFPOLICY_LOG_LEVEL": "warning", "OFFPOLICY_TORCH_COMPILE": "true"}


def rate(url: str, mebibytes: int, posts: int) -> Callable[[], float]:
    """Posts per round of bodies, and answers MiB per second."""
    source, load = Synthetic(mebibytes * MEBIBYTE // BYTES_PER_TOKEN), Load(url, BATCHES, IN_FLIGHT)

    def one_round() -> float:
        bodies = [source.body(next(STEPS)) for _ in range(posts)]
        return sum(body.nbytes for body in bodies) / MEBIBYTE / load.seconds(bodies)

    return one_round


@contextmanager
def both(folder: Path, cluster: Cluster) -> Iterator[tuple[str, str, str]]:
    """URLs of one process, and of two replicas; the database of the latter."""
    with ExitStack() as stack:
        one = stack.enter_context(
            service(folder, OFFPOLICY_DEVICE="cpu", OFFPOLICY_DATABASE_URL=cluster.url(cluster.database()), **SETTINGS)
        )
        database = cluster.url(cluster.database())
        ray = stack.enter_context(under_ray(folder, database, "--replicas", "2", **SETTINGS))
        for url in (one.url, ray.url):
            wait_until_compiled(url)
        yield one.url, ray.url, database


def wait_until_compiled(url: str) -> None:
    """Return when whichever process is asked measures by the compiled pass."""
    asked, deadline = 0, time.monotonic() + COMPILED_WITHIN
    while asked < ASKED:
        with urllib.request.urlopen(f"{url}/readyz", timeout=20) as answer:
            asked = asked + 1 if json.load(answer)["measured_by"] == "fused" else 0
        if time.monotonic() > deadline:
            raise TimeoutError(f"not compiled within {COMPILED_WITHIN:g} s")
        time.sleep(0.1)


def main() -> None:
    """Measure, and print a row for each size."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.replicas")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each, of which the median counts (default: 5)")
    rounds, progress = parser.parse_args().rounds, Progress()
    with workplace() as folder:
        clusters = Clusters(folder / "postgres")
        try:
            with both(folder, clusters.get()) as (one, ray, database):
                print("| bodies | one process, MiB/s | two replicas, MiB/s | times | a replica's memory, MiB |")
                print("|---|---|---|---|---|")
                for mebibytes, posts in SIZES.items():
                    candidates = {"one": rate(one, mebibytes, posts), "ray": rate(ray, mebibytes, posts)}
                    found = by_turns(candidates, rounds, progress)
                    held = max(map(resident, replicas(database)))
                    times = found["ray"] / found["one"]
                    row = f"| {mebibytes} MiB | {found['one']:.0f} | {found['ray']:.0f} | {times:.2f} | {held:.0f} |"
                    print(row, flush=True)
        finally:
            clusters.close()


if __name__ == "__main__":
    main()
