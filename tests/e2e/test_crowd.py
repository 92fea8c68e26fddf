"""Clients that cost the service something and bring it nothing keep nobody else out, and leave nothing behind."""

import time
from pathlib import Path

from tests.chaos.crowd import KINDS
from tests.chaos.scenarios.crowd import crowd
from tests.chaos.watch import MEBIBYTE, seen
from tests.fixtures.application import json_bytes
from tests.fixtures.live import Service, serving

CONNECTIONS = 100
#: Descriptors that may be left: of threads that read the database, each with its connection.
SPARE = 20


def until(service: Service, most: float, seconds: float = 10.0) -> float:
    """The descriptors that the service holds, once they are no more than `most`."""
    deadline = time.monotonic() + seconds
    while (held := seen(service.process.pid, 0).descriptors) > most and time.monotonic() < deadline:
        time.sleep(0.05)
    return held


def test_trainers_go_on_in_a_crowd_of_every_kind_and_what_it_took_is_given_back(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        assert service.post(json_bytes(step=0))[0] == 200
        before = seen(service.process.pid, 0)
        with crowd(service.port, CONNECTIONS) as made:
            for step in range(1, 9):
                assert service.post(json_bytes(step=step))[0] == 200
            within = seen(service.process.pid, 0)
            assert within.descriptors - before.descriptors > CONNECTIONS * 0.8
        assert len(made) == len(KINDS) and sum(made.values()) >= CONNECTIONS
        after = until(service, before.descriptors + SPARE)
        assert after <= before.descriptors + SPARE
        assert within.memory - before.memory < 200 * MEBIBYTE
