"""Servers in processes of their own: the service, the sink and the naive service, each on a free port until the end.

The service's database lies in a folder of the checkout, not in /tmp: in a file system in memory a commit costs nothing.
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.fixtures import service as fixture
from tests.fixtures.service import COMMAND, wait_until_ready

BATCHES = "/v1/runs/bench/batches"
AS_MONITOR = f"{BATCHES}?detail=none"  # it looks at no figures
SINK = (sys.executable, "-m", "tests.benchmarks.sink")
RESTS_WITHIN = 120.0  # seconds
LOOK = 0.5  # seconds between two looks at the processor time spent
BUSY = 0.1  # of one processor
NAIVE = (sys.executable, "-m", "tests.benchmarks.naive")


class Served(fixture.Served):
    """A server that was started; it may be used after `wait`."""

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait(self) -> None:
        """Return when it answers and has come to rest: after its first start, what it uses is compiled beside it."""
        wait_until_ready(self.url, self.process)
        deadline, spent, before = time.monotonic() + RESTS_WITHIN, session_seconds(self.pid), -1.0
        while spent - before > BUSY * LOOK and time.monotonic() < deadline:
            time.sleep(LOOK)
            before, spent = spent, session_seconds(self.pid)


def session_seconds(session: int) -> float:
    """Processor time spent by the processes of a session, compilers among them; 0 where there is no /proc."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended between the two looks
        ticks += sum(map(int, fields[11:13])) if int(fields[3]) == session else 0
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def service(folder: Path, compiled: bool, **environment: str) -> Iterator[Served]:
    """`offpolicy-monitor serve` on the CPU with an empty SQLite database in the folder."""
    database = f"sqlite:///{folder / 'bench.db'}"
    command = (*COMMAND, "serve", "--database-url", database, "--port")
    chosen = {"DEVICE": "cpu", "LOG_LEVEL": "warning", "TORCH_COMPILE": str(compiled)}
    settings = {f"OFFPOLICY_{name}": value for name, value in chosen.items()}
    with served(command, folder / "service.log", **settings, **environment) as running:
        yield running


@contextmanager
def served(command: Sequence[str], log: Path, **environment: str) -> Iterator[Served]:
    """Start the command with a free port as its last argument."""
    with fixture.served(command, log, environment) as running:
        yield Served(running.port, running.process, running.log)
