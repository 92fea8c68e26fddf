"""More monitors than are served within their time-outs: what they give up on and send again does not pile up."""

import http.client
import json
import random
import re
import shutil
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.slow_service import PROGRAM
from tests.fixtures.application import SAFETENSORS, database, good_frame
from tests.fixtures.service import served, wait_until_ready

MONITORS = 96
MEASURING = 0.05  # seconds per shard: all of them take almost five
TIMEOUT = 2.0  # seconds that a monitor waits, and never more: a third of the shards
QUEUE_WAIT = 0.8  # seconds
DRAINED_WITHIN = 60.0  # seconds


@dataclass
class Storm:
    """Monitors that post one shard each until it is stored, and wait no longer than TIMEOUT for an answer."""

    port: int
    stored: list[int] = field(default_factory=list)
    answers: Counter[int] = field(default_factory=Counter)
    deadline: float = field(default_factory=lambda: time.monotonic() + DRAINED_WITHIN)

    def blow(self, step: int) -> None:
        """All of them at once; returns when each is stored or the deadline has passed."""
        threads = [threading.Thread(target=self._deliver, args=(number, step)) for number in range(MONITORS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _deliver(self, number: int, step: int) -> None:
        body = good_frame(step=step, labels={"monitor": f"{step}.{number}"})
        while time.monotonic() < self.deadline:
            status, wait = self.attempt(number, body)
            self.answers[status] += 1
            if status == 200:
                self.stored.append(number)
                return
            time.sleep(wait + random.uniform(0.0, 0.2))

    def attempt(self, number: int, body: bytes) -> tuple[int, float]:
        """The status, 0 where there was none in time, and the seconds to wait before the next attempt."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        try:
            connection.request("POST", f"/v1/runs/r{number}/batches", body, SAFETENSORS)
            response = connection.getresponse()
            json.loads(response.read())
            return response.status, float(response.getheader("Retry-After", "0"))
        except OSError:
            return 0, 0.0
        finally:
            connection.close()


def answer_to(connection: http.client.HTTPConnection) -> int:
    """The status of what was asked, once it is answered in full."""
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status


@contextmanager
def slow_service(folder: Path, template: Path, measuring: float, queue_wait: float) -> Iterator[int]:
    """The port of a service over an empty database; it notes what it measures, one at a time, in `measured`."""
    shutil.copy(template, folder / "offpolicy.db")
    settings = {"OFFPOLICY_DATABASE_URL": database(folder), "OFFPOLICY_MAX_QUEUE_WAIT": str(queue_wait)}
    settings["OFFPOLICY_MEASURE_THREADS"] = "1"
    command = [sys.executable, "-c", PROGRAM, str(measuring), str(folder / "measured")]
    with served(command, folder / "log", settings) as running:
        wait_until_ready(running.url, running.process)
        yield running.port


def test_a_storm_of_retries_drains_and_the_next_one_is_served(tmp_path: Path, migrated_file: Path) -> None:
    with slow_service(tmp_path, migrated_file, MEASURING, QUEUE_WAIT) as port:
        for step in (1, 2):
            storm = Storm(port)
            storm.blow(step)
            assert sorted(storm.stored) == list(range(MONITORS)), storm.answers
            assert set(storm.answers) <= {0, 200, 503}
        times = Counter((tmp_path / "measured").read_text().split())
    assert len(times) == 2 * MONITORS
    assert max(times.values()) <= 2, times.most_common(5)


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Iterator[tuple[int, Path]]:
    """The port of a service that measures for two seconds and a half, and where it notes that. Nothing is too long."""
    folder = tmp_path_factory.mktemp("patient")
    with slow_service(folder, migrated_file, measuring=2.5, queue_wait=60) as port:
        yield port, folder / "measured"


def disconnected(port: int) -> float:
    """How many batches were dropped since their clients had left."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        metrics = answer.read().decode()
    counted = r'^offpolicy_rejected_requests_total\{reason="client-disconnected"\} (\S+)$'
    return sum(map(float, re.findall(counted, metrics, re.MULTILINE)))


def test_what_its_client_no_longer_waits_for_is_dropped_before_it_is_measured(patient: tuple[int, Path]) -> None:
    port, notes = patient

    def begin(monitor: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("POST", f"/v1/runs/{monitor}/batches", good_frame(labels={"monitor": monitor}), SAFETENSORS)
        time.sleep(0.1)
        return connection

    before = disconnected(port)
    # Small pauses keep the order in which they were begun; the first takes longer than all of them.
    running, at_hand, queued, last = (begin(monitor) for monitor in ("running", "at-hand", "queued", "last"))
    for gone in (at_hand, queued):
        gone.close()
    assert [answer_to(connection) for connection in (running, last)] == [200, 200]
    assert disconnected(port) - before == 2.0
    assert [note for note in notes.read_text().split() if note != "leaves"] == ["running", "last"]


def test_what_is_being_measured_when_its_client_leaves_is_stored_all_the_same(patient: tuple[int, Path]) -> None:
    port, notes = patient
    storm, body = Storm(port), good_frame(labels={"monitor": "leaves"})
    assert storm.attempt(1, body) == (0, 0.0)  # it waits for two of the two seconds and a half that measuring takes
    time.sleep(2.0)
    assert storm.attempt(1, body)[0] == 200
    assert notes.read_text().split().count("leaves") == 1
