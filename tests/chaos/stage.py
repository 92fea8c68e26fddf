"""The stage of a scenario: a fresh database, a service over it that may be killed, clients and their ledger.

The service is a process of its own and keeps its port from start to start. Everything is on loopback and ends with the
stage.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from tests.chaos.contents import Key
from tests.chaos.ledger import Ledger
from tests.chaos.load import Client, Load
from tests.chaos.scenario import POSTGRES, Outcome
from tests.fixtures.postgres import Cluster
from tests.fixtures.service import (
    COMMAND,
    DEFAULTS,
    Process,
    free_port,
    started,
    stop,
    wait_until_ready,
)
from tests.fixtures.tools import DEBIAN_PACKAGES, find_tool

PROBE = "probe"
#: The program as it is installed, which imports anew: COMMAND is forked from a process that has.
PROGRAM = (sys.executable, "-m", "offpolicy_monitor.cli")


class SkippedError(Exception):
    """This machine lacks what a scenario needs."""


class Busy:
    """How busy the machine is: a process that computes for a while beside what is measured."""

    PROGRAM = """
import time
began, computed = time.monotonic(), time.process_time()
while time.process_time() - computed < 0.3:
    pass
print((time.monotonic() - began) / 0.3)
"""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", self.PROGRAM], stdout=subprocess.PIPE, text=True)

    def times(self) -> float:
        """So many times longer than alone does everything take, at least 1."""
        return max(1.0, float(self._process.communicate(timeout=60)[0]))


class Stage:
    """What a scenario is given; `cluster` is there on PostgreSQL alone, and shared with other scenarios."""

    def __init__(self, folder: Path, outcome: Outcome, times: int, cluster: Cluster | None) -> None:
        self.folder, self.outcome, self.times = folder, outcome, times
        self.stack = ExitStack()
        self.ledger, self.port = Ledger(), free_port()
        self.process: Process | None = None
        self._cluster, self._probes = cluster, 0
        if outcome.database == POSTGRES:
            name = self.cluster.database()
            self.stack.callback(lambda: self.cluster.take_back(name))
            self.url = self.cluster.url(name)
        else:
            self.url = f"sqlite:///{folder / 'offpolicy.db'}"
        self.stack.callback(self.end)

    @property
    def cluster(self) -> Cluster:
        """The PostgreSQL server."""
        assert self._cluster is not None
        return self._cluster

    @property
    def log(self) -> Path:
        """What the service says."""
        return self.folder / "service.log"

    @property
    def measured(self) -> dict[str, float]:
        """Figures that the report tells."""
        return self.outcome.measured

    def start(
        self, command: Sequence[str] = COMMAND, environment: Mapping[str, str] | None = None, url: str | None = None
    ) -> None:
        """Start the service and return when it is ready."""
        variables = DEFAULTS | {"OFFPOLICY_DATABASE_URL": url or self.url, "OFFPOLICY_DEVICE": "cpu"}
        with self.log.open("ab") as lines:
            arguments = [*command, "serve", "--port", str(self.port)]
            self.process = started(arguments, lines, variables | dict(environment or {}))
        wait_until_ready(f"http://127.0.0.1:{self.port}", self.process)

    def kill(self) -> None:
        """End the service by SIGKILL."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)
        self.process = None

    def end(self) -> None:
        """End the service as a supervisor does."""
        if self.process is not None:
            stop(self.process)
        self.process = None

    def load(self, finish: bool = True, **options: float) -> AbstractContextManager[None]:
        """Clients that post while inside; `finish`: until all that was begun is acknowledged."""
        return Load(self.port, self.ledger, **options).running(finish)  # type: ignore[arg-type]

    def trials(self) -> Iterator[int]:
        """Counts the injections of the fault, and tells of each on stderr."""
        for number in range(self.times):
            yield number
            self.outcome.trials = number + 1
            done = f"{self.outcome.scenario}, {self.outcome.database}: {number + 1}/{self.times}"
            print(f"  {done}, {len(self.ledger.acknowledged)} acknowledged", file=sys.stderr, flush=True)

    @contextmanager
    def recovering(self, within: float | None = None) -> Iterator[None]:
        """The time from the beginning of the block to the first acknowledgement after it is a recovery.

        It is to be `within` seconds, and as many times longer as the machine is busy with others.
        """
        began, busy = time.monotonic(), Busy()
        yield
        self.acknowledge_one()
        took = time.monotonic() - began
        self.outcome.recovery.append(round(took, 2))
        if within is not None:
            allowed = within * busy.times()
            self.promise(took < allowed, f"recovery took {took:.1f} s of {allowed:.1f} allowed")

    def acknowledge_one(self, seconds: float = 60.0) -> None:
        """Post one shard until it is acknowledged."""
        client, key = Client(self.port, self.ledger), Key(PROBE, self._probes, 0)
        self._probes += 1
        deadline = time.monotonic() + seconds
        while client.post(key) != 200:
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing was acknowledged within {seconds:g} s: {self.ledger.problems}")
            time.sleep(0.02)
        client.close()

    def promise(self, holds: bool, sentence: str) -> None:
        """Note a promise that is broken."""
        if not holds:
            self.outcome.broken.append(sentence)

    def needs(self, tool: str) -> Path:
        """A program; where it is missing the scenario is skipped, and fails with CI=true."""
        found = find_tool(tool)
        if found is None:
            reason = f"needs {tool}: apt-get install {DEBIAN_PACKAGES.get(tool, tool)}"
            if os.environ.get("CI") == "true":
                raise RuntimeError(reason)
            raise SkippedError(reason)
        return found


@contextmanager
def folder_for(root: Path, name: str) -> Iterator[Path]:
    """A folder that is gone afterwards."""
    folder = root / name
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
