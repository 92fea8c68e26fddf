"""Some ranks of the fleet: `python -m tests.benchmarks.fleet.clients URL PART PARTS CONNECTIONS WARM SECONDS`.

A process of its own, so that several of them load several workers. Each connection has its share of the ranks, and
posts the shards of one step for all of them before it begins the next. A post that is refused for now, or whose
connection breaks, comes again. Prints JSON: what was acknowledged in all, and of the seconds after the first `WARM` the
posts, tokens and latencies by kind.
"""

import http.client
import json
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from urllib.parse import urlsplit

from offpolicy_monitor.client.connection import send

from tests.benchmarks.fleet.ranks import Rank, ranks, shard_arrays

TIMEOUT = 120.0
MOST_WAIT = 5.0


@dataclass
class Seen:
    """What became of the posts of one process; `latencies` in ms, of those that ended while it was measured."""

    acknowledged: int = 0
    again: Counter[str] = field(default_factory=Counter)
    latencies: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    tokens: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Connection:
    """One connection, and the ranks that post over it."""

    def __init__(self, netloc: str, of: Sequence[Rank], seen: Seen, measured: tuple[float, float]) -> None:
        self._http = http.client.HTTPConnection(netloc, timeout=TIMEOUT)
        self._ranks, self._seen, self._measured = of, seen, measured

    def run(self) -> None:
        """Post step after step until the time is up."""
        step = 0
        while time.monotonic() < self._measured[1]:
            for rank in self._ranks:
                if time.monotonic() >= self._measured[1]:
                    return
                self._until_stored(rank, step)
            step += 1

    def _until_stored(self, rank: Rank, step: int) -> None:
        body, began = rank.body(step), time.monotonic()
        headers = {"Content-Type": body.media_type, "Content-Length": str(body.nbytes)}
        while True:
            try:
                if self._http.sock is None:
                    self._http.connect()
                send(self._http, "POST", rank.path, body.buffers, headers)
                answer = self._http.getresponse()
                text = answer.read()
            except (OSError, http.client.HTTPException) as error:
                self._http.close()
                self._note(type(error).__name__)
                continue
            if answer.status == 200:
                break
            if answer.status not in (429, 503):
                raise RuntimeError(f"POST {rank.path} answered {answer.status}: {text[:300]!r}")
            self._note(str(answer.status))
            time.sleep(min(float(answer.headers.get("Retry-After", 1)), MOST_WAIT))
        ended = time.monotonic()
        with self._seen.lock:
            self._seen.acknowledged += 1
            if self._measured[0] <= ended < self._measured[1]:
                self._seen.latencies[rank.kind.name].append(round(1e3 * (ended - began), 2))
                self._seen.tokens += rank.kind.tokens

    def _note(self, why: str) -> None:
        with self._seen.lock:
            self._seen.again[why] += 1


def main(url: str, part: int, parts: int, connections: int, warm: float, seconds: float) -> None:
    """Post, and print what was seen."""
    mine = list(ranks())
    Random(0).shuffle(mine)  # runs of all kinds beside each other, as in a fleet
    mine = mine[part::parts]
    for rank in mine:
        shard_arrays(rank.kind, rank.shard)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    begins = time.monotonic() + warm
    seen, failed = Seen(), list[BaseException]()

    def guarded(connection: Connection) -> None:
        try:
            connection.run()
        except BaseException as error:
            failed.append(error)

    shares = [mine[first::connections] for first in range(connections)]
    lines = [Connection(urlsplit(url).netloc, share, seen, (begins, begins + seconds)) for share in shares]
    threads = [threading.Thread(target=guarded, args=(line,)) for line in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    found = {"acknowledged": seen.acknowledged, "again": seen.again, "latencies": seen.latencies, "tokens": seen.tokens}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), *map(float, sys.argv[5:7]))
