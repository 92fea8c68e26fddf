"""The first seconds of a service: how many shards it acknowledges while what makes it fast is compiled beside it.

Four starts, some ten seconds each: none waits for the compiler. How it compiles is nothing to it.
"""

import http.client
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from tests.benchmarks.batches import Synthetic
from tests.benchmarks.rows import Row, at_least
from tests.benchmarks.scale import Scale
from tests.benchmarks.servers import BATCHES, Served, service
from tests.benchmarks.timing import Progress
from tests.fixtures.service import READY_WITHIN

WHAT = "shards acknowledged in the first five seconds"
TOKENS = 16_384
SECONDS = 5.0
CLIENTS = 4
GOAL = at_least(0.8)
#: Whether each start compiles: a machine that grows slower or faster meanwhile does so for both.
ORDER = (False, True, True, False)


def start_rows(scale: Scale, progress: Progress, folder: Path) -> list[Row]:
    """Shards in the first seconds of a service that compiles, from an empty cache, over one that never does."""
    if not scale.compiled:
        return [Row(WHAT, None, "shards", note="not measured in a quick run")]
    counts: dict[bool, list[float]] = {False: [], True: []}
    for index, compiled in enumerate(ORDER):
        progress.step(index + 1, len(ORDER), WHAT)
        counts[compiled].append(acknowledged(folder, compiled))
    plain, compiling = statistics.mean(counts[False]), statistics.mean(counts[True])
    note = f"{plain:g} where nothing is compiled; {TOKENS:,} tokens each, {CLIENTS} clients"
    return [Row(f"{WHAT} with an empty cache", compiling, "shards", compiling / plain, GOAL, note)]


def acknowledged(folder: Path, compiled: bool) -> int:
    """Shards that a new service answers with 200 in its first seconds, from the first connection on."""
    source, stopped, counts = Synthetic(TOKENS), threading.Event(), [0] * CLIENTS
    with tempfile.TemporaryDirectory(dir=folder) as name:
        folder = Path(name)
        with service(folder, compiled, XDG_CACHE_HOME=str(folder / "cache")) as running:
            wait_until_it_listens(running)
            threads = [
                threading.Thread(target=post, args=(running, source, stopped, counts, i)) for i in range(CLIENTS)
            ]
            for thread in threads:
                thread.start()
            time.sleep(SECONDS)
            total = sum(counts)
            stopped.set()
            for thread in threads:
                thread.join()
    return total


def wait_until_it_listens(server: Served) -> None:
    """Return when a connection is accepted."""
    parts, deadline = urlsplit(server.url), time.monotonic() + READY_WITHIN
    while time.monotonic() < deadline:
        try:
            socket.create_connection((parts.hostname, parts.port), 1.0).close()
            return
        except OSError:
            time.sleep(0.02)
    raise AssertionError("the service does not listen")


def post(to: Served, source: Synthetic, stopped: threading.Event, counts: list[int], index: int) -> None:
    """Post shard after shard on one connection, and count the answers in `counts[index]`."""
    connection = http.client.HTTPConnection(urlsplit(to.url).netloc, timeout=60)
    step = index
    while not stopped.is_set():
        body = source.body(step)
        connection.request("POST", BATCHES, b"".join(body.buffers), {"Content-Type": body.media_type})
        answer = connection.getresponse()
        answer.read()
        counts[index] += answer.status == 200
        step += CLIENTS
    connection.close()
