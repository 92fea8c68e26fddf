"""The stage of a scenario: a fresh database, a service over it that may be killed, clients and their ledger.

The service is a process of its own and keeps its port from start to start. Everything is on loopback and ends with the
stage.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from tests.chaos.audit import audit
from tests.chaos.contents import Key
from tests.chaos.ledger import Ledger
from tests.chaos.load import PAUSE, Client, Load
from tests.chaos.scenario import POSTGRES, Outcome
from tests.fixtures.faults import compiled
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
from tests.fixtures.workers import processes

PROBE = "probe"
#: How many times longer everything takes on a machine that counts as busy with others.
OTHERS = 1.5
#: MiB by which memory may grow under a fault: errors that refer to themselves wait for the collector of garbage.
FLAT = 128.0
#: Seconds of work after which a service has what it needs to work.
WARM = 2.0
#: Sentences about one outcome that are kept.
MOST = 8
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
    """What a scenario is given; `cluster` is there on PostgreSQL alone, and shared with other scenarios.

    Clients `pause` for so many seconds between two shards, where a scenario has no other pause for them.
    """

    def __init__(
        self, folder: Path, outcome: Outcome, times: int, cluster: Cluster | None, pause: float = PAUSE
    ) -> None:
        self.folder, self.outcome, self.times, self._pause = folder, outcome, times, pause
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
        self, command: Sequence[str] = COMMAND, environment: Mapping[str, str] | None = None, port: int | None = None
    ) -> None:
        """Start the service, on the port of the clients unless another is named, and return when it is ready."""
        port = port or self.port
        variables = DEFAULTS | {"OFFPOLICY_DATABASE_URL": self.url, "OFFPOLICY_DEVICE": "cpu"}
        with self.log.open("ab") as lines:
            arguments = [*command, "serve", "--port", str(port)]
            self.process = started(arguments, lines, variables | dict(environment or {}))
        wait_until_ready(f"http://127.0.0.1:{port}", self.process)

    @contextmanager
    def flat(self, mib: float = FLAT) -> Iterator[None]:
        """Inside, the memory of the service is to grow by less than so many MiB, once it has worked for a while."""
        time.sleep(WARM)
        before, most, over = self.resident(), [0.0], threading.Event()

        def watch() -> None:
            while not over.wait(0.1):
                most.append(self.resident())

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join(20)
        grown = max(0.0, max(most) - before)
        self.most("memory grew by, MiB", round(grown))
        self.promise(grown < mib, f"memory grew by {grown:.0f} MiB of {mib:g} allowed")

    def answered(self, statuses: set[int], unanswered: bool = False) -> None:
        """Requests were to be answered by these and no other statuses, each that is temporary with Retry-After."""
        others = set(self.ledger.answers) - statuses
        self.promise(not others, f"answers were {sorted(others)}: {list(self.ledger.problems)[:3]}")
        self.promise(unanswered or not self.ledger.unanswered, f"without an answer: {dict(self.ledger.unanswered)}")
        self.promise(not self.ledger.without_retry_after, "a 503 had no Retry-After")
        self.measured["slowest answer, s"] = round(self.ledger.slowest, 1)

    def answered_within(self, seconds: float) -> None:
        """No answer to a client was to take longer."""
        slowest = self.ledger.slowest
        self.promise(slowest < seconds, f"an answer took {slowest:.1f} s of {seconds:.1f} allowed")

    def alive(self) -> None:
        """Whatever the fault, /healthz is answered 200."""
        self.promise(self.got("/healthz")[0] == 200, "/healthz was not answered")

    def unready(self, saying: str) -> None:
        """/readyz is 503, and says this of why."""
        status, ready = self.got("/readyz")
        self.promise(status == 503 and saying in ready, f"/readyz was {status}: {ready}")

    def told(self, status: int, seconds: float = 20.0) -> None:
        """Wait until a client is answered so."""
        self.wait_for(lambda: self.ledger.answers[status], seconds, f"nobody was told {status}")

    def wait_for(self, what: Callable[[], object], seconds: float, sentence: str) -> None:
        """Return when something holds; a promise is broken where that takes too long."""
        deadline = time.monotonic() + seconds
        while not what():
            if time.monotonic() > deadline:
                return self.promise(False, sentence)
            time.sleep(0.05)

    def resident(self) -> float:
        """MiB of memory that the service holds, all of its processes together; what they share counts once."""
        assert self.process is not None
        kib = 0
        for pid in (self.process.pid, *self.workers()):
            with suppress(OSError):  # it has just ended
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                kib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return kib / 1024

    def workers(self) -> list[int]:
        """The processes of the service but for the first."""
        return processes(self.process.pid) if self.process is not None else []

    def got(self, path: str, seconds: float = 20.0) -> tuple[int, str]:
        """Status and body of a GET; 0 where nothing answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=seconds) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def preloaded(self, source: Path) -> Path:
        """A library of the fixtures, compiled, that PostgreSQL's user may read too."""
        return compiled(source, self.needs("g++"), self.folder)

    def kill(self) -> None:
        """End the service by SIGKILL."""
        assert self.process is not None
        self._runs()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)
        self.process = None

    def end(self) -> None:
        """End the service as a supervisor does."""
        if self.process is not None:
            self._runs()
            stop(self.process)
        self.process = None

    def _runs(self) -> None:
        """No fault is to end the service but one that ends it by `kill` or `end`."""
        status = self.process.poll() if self.process is not None else None
        self.promise(status is None, f"the service has ended by itself, with {status}")

    def load(self, finish: bool = True, **options: float) -> AbstractContextManager[None]:
        """Clients that post while inside; `finish`: until all that was begun is acknowledged."""
        return Load(self.port, self.ledger, **{"pause": self._pause, **options}).running(finish)  # pyrefly: ignore[bad-argument-type]

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

        It is to be `within` seconds; on a machine that is busy with others, seconds of the processor that the service
        was started with.
        """
        began, busy = time.monotonic(), Busy()
        yield
        self.acknowledge_one()
        took = time.monotonic() - began
        self.outcome.recovery.append(round(took, 2))
        if within is not None:
            own, times = self.computed(), busy.times()
            spent = own if times > OTHERS else took
            self.most("a start, s of a processor", own)
            self.most("slower than alone, times", times)
            self.promise(min(spent, took) < within, f"recovery took {took:.1f} s, {spent:.1f} of them its own")

    def computed(self) -> float:
        """Seconds of a processor that the service has used since its start."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def most(self, what: str, value: float) -> None:
        """Report the largest of some figures."""
        self.measured[what] = max(round(value, 1), self.measured.get(what, 0.0))

    def acknowledged_meanwhile(self, number: int, seconds: float) -> None:
        """Return when so many shards more are acknowledged, or the time is up."""
        until, wanted = time.monotonic() + seconds, len(self.ledger.acknowledged) + number
        while len(self.ledger.acknowledged) < wanted and time.monotonic() < until:
            time.sleep(0.001)

    def acknowledge_one(self, seconds: float = 60.0) -> None:
        """Post one shard until it is acknowledged."""
        client, key = Client(self.port, self.ledger), Key(PROBE, self._probes, 0)
        self._probes += 1
        deadline = time.monotonic() + seconds
        try:
            while client.post(key) != 200:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"nothing was acknowledged within {seconds:g} s: {self.ledger.problems}")
                time.sleep(0.02)
        finally:
            client.close()

    def promise(self, holds: bool, sentence: str) -> None:
        """Note a promise that is broken."""
        if not holds:
            self.outcome.broken.append(sentence)

    def audit(self) -> None:
        """Compare the database with the ledger."""
        found, outcome = audit(self.url, self.ledger), self.outcome
        outcome.acknowledged = found.acknowledged
        outcome.lost, outcome.doubled, outcome.wrong = map(len, (found.lost, found.doubled, found.wrong))
        outcome.found = [*found.lost, *found.doubled, *found.wrong][:MOST]
        answers = {str(status): number for status, number in self.ledger.answers.items()}
        outcome.answers = answers | dict(self.ledger.unanswered)

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
