"""A real Ray: one cluster, one replica behind HAProxy, from its start to its end."""

import json
import re
import socket
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from offpolicy_monitor import Monitor
from offpolicy_monitor.exposition.formats import DELIMITED

from tests.exposition.messages import Buckets, families
from tests.fixtures.rays import replicas, under_ray

#: What a replica takes up at once, and what waits for it unread.
ONGOING, QUEUED = 2, 1
SIZE = 200 << 20
#: What Ray would take of each body before the service asks for it, less than which is at rest in sockets.
READ_AHEAD_MIB = 100
#: How long a body is not finished after the end was asked for: Ray's own end cuts off what is under way before that.
UNFINISHED_FOR = 2.0
BODY = json.dumps({"step": 0, "sampling_logprobs": [[-1.0]], "logprobs": [[-1.1]]}).encode()
HALF = (
    b"POST /v1/runs/slow/batches HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"Content-Type: application/%s\r\nContent-Length: %d\r\n\r\n"
)


def got(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode())


def resident(pid: int) -> float:
    [kib] = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(kib) / 1024


def native_histograms(url: str) -> int:
    """How many there are in a scrape by protobuf, which a histogram has of the replicas alone."""
    wanted = urllib.request.Request(f"{url}/metrics", headers={"Accept": DELIMITED.content_type})
    with urllib.request.urlopen(wanted, timeout=20) as answer:
        found = families(answer.read())["offpolicy_token_log_ratio_nats"].samples
    return sum(
        isinstance(sample, Buckets) and sample.schema is not None and sample.count > 0 for sample in found.values()
    )


def begun(port: int) -> socket.socket:
    """A body of which a part has come."""
    connection = socket.create_connection(("127.0.0.1", port), 20)
    connection.sendall(HALF % (b"vnd.safetensors", SIZE) + b" " * 1000)
    return connection


def test_a_deployment_stores_shows_and_turns_away_what_is_too_much(tmp_path: Path, postgres_url: str) -> None:
    bounds = ["--replicas", "1", "--max-ongoing-requests", str(ONGOING), "--max-queued-requests", str(QUEUED)]
    with ExitStack() as stack:
        running = stack.enter_context(under_ray(tmp_path, postgres_url, *bounds))
        with Monitor(running.url, "r") as monitor:
            for step in range(3):
                monitor.log(step=step, sampling_logprobs=[[-1.0, -2.0]], logprobs=[[-1.1, -2.0]])
            assert monitor.flush(20)
            assert monitor.stats["sent"] == 3
        [replica] = replicas(postgres_url)
        scrape = got(f"{running.url}/metrics")
        assert 'offpolicy_step{run="r"} 2.0' in scrape
        assert re.search(r'^offpolicy_batches_total\{replica="\w+",run="r"\} 3\.0$', scrape, re.MULTILINE)
        assert re.search(r'^offpolicy_leader\{replica="\w+"\} 1\.0$', scrape, re.MULTILINE)

        assert native_histograms(running.url) == 1
        with urllib.request.urlopen(f"{running.url}/v1/runs/r", timeout=20) as answer:
            assert len(answer.headers.get_all("X-Request-Id")) == 1

        before = resident(replica)
        held = [begun(running.port) for _ in range(ONGOING)]
        time.sleep(0.5)
        waiting = begun(running.port)
        time.sleep(0.5)
        refused = begun(running.port)
        refused.settimeout(20)
        head = refused.recv(65536).decode().lower()
        assert head.startswith("http/1.1 429") and "\r\nretry-after: 1\r\n" in head
        # Who waits for a place brings as much as is taken: that ends up in the sockets on the way.
        waiting.settimeout(1.0)
        sent = 0
        try:
            while sent < SIZE:
                sent += waiting.send(b" " * (1 << 20))
        except TimeoutError:
            pass
        assert sent < SIZE and resident(replica) - before < READ_AHEAD_MIB
        with Monitor(running.url, "r") as monitor:  # meanwhile a trainer is turned away, and comes back
            monitor.log(step=3, sampling_logprobs=[[-1.0]], logprobs=[[-1.0]])
            time.sleep(0.5)
            for connection in (*held, waiting, refused):
                connection.close()
            assert monitor.flush(30)
            assert monitor.stats["sent"] == 1 and monitor.stats["retries"] >= 1
        assert json.loads(got(f"{running.url}/v1/runs/r"))["last_step"] == 3
        with socket.create_connection(("127.0.0.1", running.port), 20) as in_flight:
            in_flight.sendall(HALF % (b"json", len(BODY)) + BODY[:10])
            time.sleep(0.5)
            running.process.terminate()
            time.sleep(UNFINISHED_FOR)
            in_flight.sendall(BODY[10:])
            assert in_flight.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert running.process.wait(30) == 0
        assert replicas(postgres_url) == []
