"""A service under many small shards has processes beside it: whichever dies, no shard is lost, and none stays."""

import os
import signal
import time
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from offpolicy_monitor.store.rows.tables import runs, shards
from sqlalchemy import create_engine, select

from tests.fixtures.application import SAFETENSORS, good_frame
from tests.fixtures.fused import BY_THE_PASS, cached_pass
from tests.fixtures.posters import Posters
from tests.fixtures.prometheus import wait_for
from tests.fixtures.service import service
from tests.fixtures.workers import is_alive, processes

CLIENTS, PAUSE = 12, 0.03  # seconds after each post of each client


def helpers(service: int) -> list[int]:
    """The processes that measure beside a service."""
    return [child for own in processes(service) for child in processes(own) if is_alive(child)]


def both(service: int, without: Collection[int] = ()) -> list[int]:
    """The same once there are two, none of them one that there is to be no more."""
    return wait_for(lambda: found if len(found := helpers(service)) == 2 and not {*found} & {*without} else [])


def test_whichever_of_them_dies_no_shard_is_lost_and_none_stays_behind(tmp_path: Path) -> None:
    cached_pass()
    with service(tmp_path, OFFPOLICY_MEASURE_PROCESSES="2", **BY_THE_PASS) as running:
        pid = running.process.pid
        posters = Posters(running.url, CLIENTS, lambda step: (good_frame(step=step), SAFETENSORS))
        with posters.posting("r", pause=PAUSE):
            first = both(pid)[0]
            time.sleep(0.5)
            os.kill(first, signal.SIGKILL)
            (nursery,), second = processes(pid), both(pid, without=[first])
            for process in (nursery, *second):
                os.kill(process, signal.SIGKILL)
            last = both(pid, without=second)
            time.sleep(0.5)
        assert set(posters.answers) == {200} and not posters.unanswered
        said = running.log.read_text()
        assert "processes measure small shards beside the service" in said
        assert "a process that measures small shards is lost" in said
        running.process.kill()
        running.process.wait(10)
        wait_for(lambda: not any(map(is_alive, last)))
    with closing(create_engine(f"sqlite:///{tmp_path / 'service.db'}").connect()) as connection:
        stored = connection.execute(select(runs.c.name, shards.c.step).join(runs, runs.c.id == shards.c.run_id)).all()
    assert {tuple(row) for row in stored} == posters.acknowledged
    assert len(stored) == len(posters.acknowledged)
