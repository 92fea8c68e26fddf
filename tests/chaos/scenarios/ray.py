"""`ray up` with two replicas: one is killed, PostgreSQL restarts, bodies come that are too large for memory. Nothing
acknowledged is lost or doubled, and memory stays bounded.
"""

import os
import signal
import socket
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from tests.chaos.scenario import POSTGRES, Scenario
from tests.chaos.scenarios.server import LASTS, stopped
from tests.chaos.stage import SkippedError, Stage
from tests.fixtures.rays import COMMAND, READY_WITHIN, ray_environment, replicas
from tests.fixtures.service import started, wait_until_ready

#: Seconds in which Ray has put a new replica in the place of a dead one, on a busy machine.
REPLACED_WITHIN = 90.0
REPLICAS = 2
#: Statuses by which Ray's proxy says that whoever was asked is no more; clients try again.
GONE = {500}
#: Bodies that lack their last bytes, waited for or refused: how many, how large each says it is, of which type.
ENDLESS: Final = ((64, 60 << 20, b"vnd.safetensors"), (40, 200 << 20, b"json"))
#: For how long they come, seconds.
COME_FOR = 20.0
BUDGET = 64 << 20
#: By how much memory of a replica may grow: its budget, and what of it was copied or not given back.
GROWS_BY_MIB = 256.0
HEAD = b"POST /v1/runs/endless/batches HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/%s\r\n"


def needs_ray() -> None:
    """SkippedError where there is none."""
    if find_spec("ray") is None:
        raise SkippedError("needs ray: pip install 'offpolicy-monitor[ray]'")


def begin(stage: Stage, **environment: str) -> None:
    """Start it, ready with all replicas."""
    needs_ray()
    # A short path: those of Ray's sockets have at most 107 characters.
    files = stage.stack.enter_context(TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
    variables = ray_environment(Path(files), stage.url) | environment
    with stage.log.open("ab") as lines:
        command = [*COMMAND, "--replicas", str(REPLICAS), "--port", str(stage.port)]
        stage.process = started(command, lines, variables)
    wait_until_ready(f"http://127.0.0.1:{stage.port}", stage.process, within=READY_WITHIN)
    all_there(stage)


def all_there(stage: Stage) -> None:
    """Return when there are as many replicas as there should be."""
    found = lambda: len(replicas(stage.url)) == REPLICAS  # noqa: E731
    stage.wait_for(found, REPLACED_WITHIN, f"there were {len(replicas(stage.url))} replicas of {REPLICAS}")


def killed(stage: Stage) -> None:
    """A replica is killed under load, again and again; the other one goes on."""
    random = Random(16)
    begin(stage)
    with stage.load():
        for _ in stage.trials():
            stage.acknowledged_meanwhile(random.randint(1, 25), 8.0)
            with stage.recovering():
                os.kill(random.choice(replicas(stage.url)), signal.SIGKILL)
            all_there(stage)
    stage.answered({200, *GONE}, unanswered=True)


def without_database(stage: Stage) -> None:
    """PostgreSQL is stopped and started under load: 503 meanwhile, and no replica is given up for it."""
    begin(stage)
    before = replicas(stage.url)
    with stage.load():
        for _ in stage.trials():
            stage.acknowledged_meanwhile(200, 10.0)
            with stopped(stage):
                time.sleep(3 * LASTS)  # longer than Ray waits for a replica in ill health
            with stage.recovering():
                pass
    stage.promise(replicas(stage.url) == before, "a replica was replaced")
    stage.answered({200, 503})
    stage.promise(stage.ledger.answers[503] > 0, "nobody was told 503")


def endless(stage: Stage) -> None:
    """Bodies that say that they are large and bring as much as is taken, beside shards."""
    begin(stage, OFFPOLICY_INFLIGHT_BYTES=str(BUDGET))
    with stage.load():
        time.sleep(3.0)
        pids = replicas(stage.url)
        before = {pid: resident(pid) for pid in pids}
        most, acknowledged = dict(before), len(stage.ledger.acknowledged)
        over = threading.Event()
        bodies = [(size, kind) for number, size, kind in ENDLESS for _ in range(number)]
        senders = [threading.Thread(target=send, args=(stage.port, over, *body), daemon=True) for body in bodies]
        for sender in senders:
            sender.start()
        for _ in stage.trials():
            until = time.monotonic() + COME_FOR
            while time.monotonic() < until:
                most = {pid: max(most[pid], resident(pid)) for pid in pids}
                time.sleep(0.1)
        over.set()
        for sender in senders:
            sender.join(20)
        meanwhile = len(stage.ledger.acknowledged) - acknowledged
    grown = max(most[pid] - before[pid] for pid in pids)
    stage.measured["memory of a replica grew by, MiB"] = round(grown)
    stage.measured["declared, MiB"] = sum(size for size, _ in bodies) >> 20
    stage.promise(grown < GROWS_BY_MIB, f"memory grew by {grown:.0f} MiB of {GROWS_BY_MIB:g} allowed")
    stage.promise(meanwhile > 0, "no shard was acknowledged meanwhile")


def send(port: int, over: threading.Event, size: int, kind: bytes) -> None:
    """Bodies without an end, one after the other."""
    piece = b" " * (1 << 20)
    while not over.is_set():
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(HEAD % kind + b"Content-Length: %d\r\n\r\n" % size)
            left = size - 1
            while left and not over.is_set():
                with suppress(TimeoutError):
                    left -= connection.send(piece[:left])
            over.wait(5)
        over.wait(0.1)


def resident(pid: int) -> float:
    """MiB of memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [kib] = [int(line.split()[1]) for line in lines if line.startswith("VmRSS:")]
    return kib / 1024


SCENARIOS = (
    Scenario("a replica killed, Ray", killed, (POSTGRES,), full=5, quick=0, limit=1200, alone=True),
    Scenario("server stopped and started, Ray", without_database, (POSTGRES,), full=2, quick=0, limit=1200, alone=True),
    Scenario("endless bodies, Ray", endless, (POSTGRES,), full=2, quick=0, limit=1200, alone=True),
)
