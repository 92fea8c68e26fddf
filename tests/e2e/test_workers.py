"""`serve --workers`: real processes on a real PostgreSQL answer as one, whichever is asked and whichever dies."""

import http.client
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from offpolicy_monitor.store.rows.tables import runs, steps
from sqlalchemy import NullPool, create_engine, select

from tests.fixtures.application import JSON, json_bytes
from tests.fixtures.fused import BY_THE_PASS, cached_pass
from tests.fixtures.posters import Posters
from tests.fixtures.prometheus import wait_for
from tests.fixtures.service import COMMAND, DEFAULTS, Served, served, service, started, wait_until_ready
from tests.fixtures.tls import make_certificate
from tests.fixtures.workers import is_alive, leader_in, processes

#: A leader that dies is followed at once, with some grace; a worker that dies is replaced.
AFTER_DEATH = 8.0
#: Of a service that is told to end.
END_WITHIN = 20.0
#: Until a pass that is compiled already is what measures.
COMPILED_WITHIN = 60.0
#: Shards of a step, and steps.
SHARDS, STEPS = 8, 3
#: What a scrape tells of scrapes, and of the moment.
OWN = re.compile(r"^offpolicy_(request_seconds|ingest_bytes|oldest_job|store_seconds|stage_seconds)")


class Client:
    """A connection that is kept, and so one worker."""

    def __init__(self, port: int, timeout: float = 30.0) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        self.worker = ""

    def reached(self) -> str:
        """Which worker it is."""
        self.get("/healthz")
        return self.worker

    def get(self, path: str) -> tuple[int, str]:
        return self._asked("GET", path)

    def post(self, run: str, **members: Any) -> tuple[int, Any]:
        status, text = self._asked("POST", f"/v1/runs/{run}/batches", json_bytes(**members), JSON)
        return status, json.loads(text)

    def _asked(self, *asked: Any) -> tuple[int, str]:
        self.connection.request(*asked)
        answer = self.connection.getresponse()
        self.worker = answer.headers["X-Request-Id"].partition("-")[0]
        return answer.status, answer.read().decode()


class Workers(Served):
    """A service of several workers, and who is connected to it."""

    def __init__(self, served: Served) -> None:
        super().__init__(served.port, served.process, served.log)
        object.__setattr__(self, "clients", [])

    def client(self, timeout: float = 30.0) -> Client:
        """One more, which is connected."""
        made = Client(self.port, timeout)
        self.clients.append(made)
        made.connection.connect()
        return made

    def of_each(self, number: int, clients: int = 1) -> list[Client]:
        """So many clients of each worker. Shares are not always even: a client that has just left may still count."""
        found: dict[str, list[Client]] = {}
        for _ in range(2 * number * clients):
            client = self.client()
            found.setdefault(client.reached(), []).append(client)
            if sum(len(mine) >= clients for mine in found.values()) == number:
                return [client for mine in found.values() for client in mine[:clients]]
        raise AssertionError(f"not {clients} of each of {number} workers, but {sorted(map(len, found.values()))}")

    def scrape(self) -> str:
        """By a connection of its own."""
        return self.client().get("/metrics")[1]


@contextmanager
def workers(folder: Path, url: str, number: int, name: str = "service", **settings: str) -> Iterator[Workers]:
    settings = DEFAULTS | settings | {"OFFPOLICY_DATABASE_URL": url, "OFFPOLICY_WORKERS": str(number)}
    with service(folder, name=name, **settings) as served:
        running = Workers(served)
        try:
            yield running
        finally:
            for client in running.clients:
                client.connection.close()


def workers_of(running: Served) -> list[int]:
    """The workers."""
    return processes(running.process.pid)


def leader_of(running: Served) -> int:
    """The process that leads, or will in a moment."""
    wait_for(lambda: leader_in(running.log) is not None, AFTER_DEATH)
    leader = leader_in(running.log)
    assert leader is not None
    return leader


def sample(text: str, name: str) -> float:
    return sum(float(line.split()[-1]) for line in text.splitlines() if re.match(rf"{name}[ {{]", line))


def stored(url: str) -> list[Any]:
    """Every step, as it is stored."""
    engine = create_engine(url, poolclass=NullPool)
    wanted = (runs.c.name, steps.c.step, steps.c.state, steps.c.received, steps.c.summary)
    with engine.connect() as connection:
        query = select(*wanted).join(runs, runs.c.id == steps.c.run_id).order_by(runs.c.name, steps.c.step)
        return [tuple(row) for row in connection.execute(query)]


def values(step: int, shard: int) -> dict[str, Any]:
    """Log-probs whose sums depend on their order."""
    own = [(step + 1) * (shard + 1) * 0.1 ** (k + 1) for k in range(5)]
    return {
        "lengths": [2, 3],
        "sampling_logprobs": [-1 - value for value in own],
        "old_logprobs": [-1 - 1.1 * value for value in own],
        "logprobs": [-1 - 1.3 * value for value in own],
        "advantages": [0.5, -0.5],
    }


def by_torch() -> dict[str, str]:
    """Settings of a service that measures by torch, and goes on to."""
    return DEFAULTS


def by_the_fused_pass() -> dict[str, str]:
    """Of one that measures by the pass that these tests have compiled."""
    cached_pass()
    return BY_THE_PASS


@pytest.mark.parametrize(("form", "settings"), [("torch", by_torch), ("fused", by_the_fused_pass)])
def test_figures_are_the_same_to_the_bit_with_one_two_and_four_workers(
    form: str, settings: Callable[[], dict[str, str]], tmp_path: Path, postgres_database: Callable[[], str]
) -> None:
    found = []
    for number in (1, 2, 4):
        url = postgres_database()
        with (
            workers(tmp_path, url, number, f"of-{number}", **settings()) as running,
            ThreadPoolExecutor(SHARDS) as threads,
        ):
            clients = running.of_each(number, SHARDS // number)
            for client in clients:
                wait_for(lambda: json.loads(client.get("/readyz")[1]).get("measured_by") == form, COMPILED_WITHIN)  # noqa: B023
            for step in range(STEPS):
                together = threading.Barrier(SHARDS)

                def post(client: Client, shard: int, step: int = step, begin: Any = together) -> tuple[int, Any]:
                    begin.wait()
                    return client.post("r", step=step, shard=shard, shards=SHARDS, **values(step, shard))

                answers = list(threads.map(post, clients, range(SHARDS)))
                assert [status for status, _ in answers] == [200] * SHARDS
                assert sum(answer["complete"] for _, answer in answers) >= 1
            for client in clients:
                assert json.loads(client.get("/readyz")[1])["measured_by"] == form
        found.append(stored(url))
    assert [row[:4] for row in found[0]] == [("r", step, "complete", SHARDS) for step in range(STEPS)]
    assert found[0] == found[1] == found[2]


def test_whichever_worker_is_asked_the_service_answers_as_one(tmp_path: Path, postgres_url: str) -> None:
    settings = {"OFFPOLICY_RUN_REQUESTS_PER_SECOND": "0.01", "OFFPOLICY_RUN_BURST": "1100"}
    with workers(tmp_path, postgres_url, 2, **settings) as running:
        one, other = running.of_each(2)
        listening = running.client().connection
        listening.request("GET", "/v1/events")
        events = listening.getresponse()

        # Shards that each stored are counted by both; gauges are shown by both, though one leads.
        assert [one.post("r", step=step)[0] for step in range(3)] == [200] * 3
        assert [other.post("r", step=step)[0] for step in range(2, 5)] == [200] * 3
        texts = [client.get("/metrics")[1] for client in (one, other)]
        assert [sample(text, "offpolicy_batches_total") for text in texts] == [5, 5]
        assert [sample(text, "offpolicy_duplicate_batches_total") for text in texts] == [1, 1]
        assert [sample(text, "offpolicy_leader") for text in texts] == [1, 1]
        assert [sample(text, "offpolicy_step") for text in texts] == [4, 4]
        told = [[line for line in text.splitlines() if not OWN.match(line)] for text in texts]
        assert told[0] == told[1]
        assert [json.loads(client.get("/readyz")[1])["workers"] for client in (one, other)] == [
            {"answering": 2, "of": 2}
        ] * 2

        # Whoever listens to one is told what the other has stored.
        assert steps_told(events, last=4) == [0, 1, 2, 3, 4]

        # The halves of a rollout may come to different workers, and the newest first half counts.
        later = {"rollout": "p", "lengths": None, "sampling_logprobs": None, "old_logprobs": None}
        assert other.post("r", step=8, rollout="p", logprobs=None, advantages=[0.1, 0.1])[0] == 200
        assert one.post("r", step=8, rollout="p", logprobs=None)[0] == 200
        assert other.post("r", step=8, **later)[1]["stored"]
        assert one.post("r", step=8) == (200, {**one.post("r", step=8)[1], "duplicate": True})
        # What a run may send is counted together: eleven batches have come, which is all.
        refused = [client.post("r", step=9)[0] for client in (one, other)]
        assert refused == [429, 429]

        # A deleted run is forgotten by all.
        assert running.client()._asked("DELETE", "/v1/runs/r")[0] == 204
        wait_for(lambda: not any(sample(c.get("/metrics")[1], "offpolicy_batches_total") for c in (one, other)))


def steps_told(events: http.client.HTTPResponse, last: int) -> list[int]:
    """The steps of a stream, in the order in which they are told."""
    told: list[int] = []
    with events:
        while last not in told:
            line = events.readline().decode()
            if line.startswith("data: ") and "step" in json.loads(line[6:]):
                told.append(json.loads(line[6:])["step"])
    return told


def test_a_worker_that_dies_under_load_is_replaced_and_nothing_is_lost(tmp_path: Path, postgres_url: str) -> None:
    with workers(tmp_path, postgres_url, 2) as running:
        posters, shown = Posters(running.url), [0.0]
        with posters.posting("r", pause=0.01):
            for _ in range(2):
                wait_for(lambda: len(posters.acknowledged) > 10 * len(shown))
                before, leader = workers_of(running), leader_of(running)
                shown.append(sample(running.scrape(), "offpolicy_batches_total"))
                os.kill(leader, signal.SIGKILL)
                wait_for(lambda: leader_in(running.log) not in (None, leader), AFTER_DEATH)  # noqa: B023
                wait_for(lambda: len(workers_of(running)) == 2 and leader not in workers_of(running))  # noqa: B023
                assert before != workers_of(running)
                shown.append(sample(running.scrape(), "offpolicy_batches_total"))
        assert shown == sorted(shown)
        kept = {(run, step) for run, step, *_ in stored(postgres_url)}
        assert kept == posters.acknowledged
        assert set(posters.answers) == {200}


def test_a_stop_of_all_processes_at_once_answers_what_is_in_flight(tmp_path: Path, postgres_url: str) -> None:
    with workers(tmp_path, postgres_url, 2) as running:
        body = json_bytes()
        head = f"Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        sockets = [running.client().connection.sock for _ in range(4)]
        for number, connection in enumerate(sockets):
            connection.sendall(f"POST /v1/runs/r{number}/batches HTTP/1.1\r\n".encode() + head + body[:20])
        time.sleep(0.2)
        children, began = workers_of(running), time.monotonic()
        for pid in (running.process.pid, *children):
            os.kill(pid, signal.SIGTERM)
        time.sleep(0.2)
        for connection in sockets:
            connection.sendall(body[20:])
        for connection in sockets:
            with http.client.HTTPResponse(connection) as answer:
                answer.begin()
                assert (answer.status, json.loads(answer.read())["stored"]) == (200, True)
        assert running.process.wait(END_WITHIN) == 0
        assert time.monotonic() - began < END_WITHIN
        assert not any(map(is_alive, children))
        assert len(stored(postgres_url)) == 4


def test_a_worker_that_stands_still_holds_nothing_up_and_all_end_with_their_supervisor(
    tmp_path: Path, postgres_url: str
) -> None:
    with workers(tmp_path, postgres_url, 2) as running:
        assert running.client().post("r", step=0)[0] == 200
        assert sample(running.scrape(), "offpolicy_batches_total") == 1
        [still] = [pid for pid in workers_of(running) if pid != leader_of(running)]
        os.kill(still, signal.SIGSTOP)
        for _ in range(4):  # at least one of them finds out
            with suppress(TimeoutError):
                running.client(timeout=1.5).get("/healthz")
        began = time.monotonic()
        for _ in range(4):
            assert sample(running.scrape(), "offpolicy_batches_total") == 1
        assert time.monotonic() - began < 4 * 2.0
        os.kill(still, signal.SIGCONT)

        children = workers_of(running)
        running.process.kill()
        wait_for(lambda: not any(map(is_alive, children)), END_WITHIN)
        assert "the supervisor is gone" in running.log.read_text()


def test_workers_speak_https_to_many_that_come_at_once(tmp_path: Path, postgres_url: str) -> None:
    shown = make_certificate(tmp_path)
    variables = DEFAULTS | {"OFFPOLICY_DATABASE_URL": postgres_url, "OFFPOLICY_WORKERS": "2", **shown.settings}
    with served([*COMMAND, "serve", "--port"], tmp_path / "tls.log", variables) as running:
        wait_until_ready(f"https://127.0.0.1:{running.port}", running.process, shown.trusted)

        def asked(_: int) -> str:
            client = http.client.HTTPSConnection("127.0.0.1", running.port, timeout=30, context=shown.trusted)
            with closing(client):
                client.request("GET", "/healthz")
                return str(client.getresponse().headers["X-Request-Id"].partition("-")[0])

        with ThreadPoolExecutor(16) as threads:
            assert len(set(threads.map(asked, range(32)))) == 2


REFUSED = [
    (["--port", "0", "--workers", "0"], "OFFPOLICY_WORKERS"),
    (["--port", "0", "--workers", "65"], "OFFPOLICY_WORKERS"),
    (["--port", "0", "--workers", "2", "--database-url", "sqlite:///a.db"], "use PostgreSQL"),
]


def test_a_service_that_cannot_start_says_so_once(tmp_path: Path, postgres_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, said in (*REFUSED, (["--port", port, "--workers", "2"], "Address already in use")):
            log = tmp_path / "refused.log"
            with log.open("wb") as lines:
                variables = DEFAULTS | {"OFFPOLICY_DATABASE_URL": postgres_url}
                assert started([*COMMAND, "serve", *arguments], lines, variables).wait(30) == 3
            assert log.read_text().count(said) == 1
        # What a worker finds out is told once too, by the process that was started.
        with log.open("wb") as lines:
            variables |= {"OFFPOLICY_DEVICE": "cuda:7", "OFFPOLICY_WORKERS": "2"}
            assert started([*COMMAND, "serve", "--port", "0"], lines, variables).wait(30) == 3
        assert log.read_text().count("offpolicy-monitor: ") == 1
