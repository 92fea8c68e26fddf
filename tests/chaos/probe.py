"""Probe: how long a path takes to be answered, asked again and again on a connection of its own.

Run as a program of its own, `python -m tests.chaos.probe PORT PATH SECONDS`, so that nothing but the service and the
machine can make an answer late: SECONDS from question to question. It ends when its input does, and then tells the
times of all answers as JSON.
"""

import http.client
import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Times:
    """Seconds that answers took; `failed`: how many came not or with another status than 200."""

    seconds: list[float] = field(default_factory=list)
    failed: int = 0

    def quantile(self, share: float) -> float:
        """The time that such a share of the answers took at most."""
        ordered = sorted(self.seconds)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def ask(port: int, path: str, every: float) -> Times:
    """Ask until the input ends."""
    times, due = Times(), time.monotonic()
    while not select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
        began = time.monotonic()
        due = began + every
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            times.failed += answer.status != 200
        except (OSError, http.client.HTTPException):
            times.failed += 1
        finally:
            connection.close()
        times.seconds.append(time.monotonic() - began)
    return times


@contextmanager
def probing(port: int, path: str, every: float, before: Sequence[str] = ()) -> Iterator[Times]:
    """Inside, the path is asked for; the times are there afterwards. `before` is put before the command."""
    command = [*before, sys.executable, "-m", "tests.chaos.probe", str(port), path, str(every)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    times = Times()
    try:
        yield times
    finally:
        found = json.loads(process.communicate("", timeout=60)[0])
        times.seconds, times.failed = found["seconds"], found["failed"]


if __name__ == "__main__":
    print(json.dumps(vars(ask(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))))
