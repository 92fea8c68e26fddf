"""Threads, forks, spawned processes and the end of a process: nothing hangs, nothing is sent twice or left behind."""

import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from offpolicy_monitor import Monitor

from tests.client.batches import batch
from tests.client.fakes import Fake, black_hole, serving

WITHIN = 30.0


def log_in_child(monitor: Monitor, pipe: Any) -> None:
    began = {name: monitor.stats[name] for name in ("logged", "pending", "pending_bytes")}
    monitor.log(step=100, **batch())
    pipe.send((began, monitor.flush(10.0), monitor.stats["sent"]))
    pipe.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_process_has_a_queue_and_a_thread_of_its_own(method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    fake = Fake()
    with serving(fake):
        with Monitor(fake.url, "r", attempt=2) as monitor:
            for step in range(3):
                monitor.log(step=step, **batch())
            ours, theirs = context.Pipe()
            child = context.Process(target=log_in_child, args=(monitor, theirs))
            child.start()
            assert ours.poll(WITHIN)
            assert ours.recv() == ({"logged": 0, "pending": 0, "pending_bytes": 0}, True, 1)
            child.join(WITHIN)
            assert child.exitcode == 0
            monitor.log(step=3, **batch())
        assert monitor.stats["sent"] == 4
    assert sorted(map(int, map(str, fake.steps()))) == [0, 1, 2, 3, 100]
    assert {frame.envelope["attempt"] for frame in fake.frames()} == {2}


def test_a_fork_while_the_service_is_stuck_leaves_the_child_free() -> None:
    with black_hole() as url:
        monitor = Monitor(url, "r", attempt=0)
        for step in range(4):
            monitor.log(step=step, **batch())
        child = os.fork()
        if child == 0:
            free = monitor.stats["pending"] == 0 and monitor.flush(5.0)
            monitor.log(step=9, **batch())
            os._exit(0 if free and monitor.stats["pending"] == 1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert monitor.stats["pending"] == 4
        monitor.close(0.05)


def test_a_pickled_monitor_is_one_of_the_same_settings() -> None:
    fake = Fake()
    with serving(fake), Monitor(fake.url, "r", attempt=3, token="t", labels={"a": "b"}) as monitor:
        copy = pickle.loads(pickle.dumps(monitor))
        copy.log(step=0, **batch())
        copy.close()
        assert monitor.stats["logged"] == 0
    assert fake.posts()[0].headers["Authorization"] == "Bearer t" and fake.frames()[0].envelope["attempt"] == 3


def log_as(monitor: Monitor, shard: int) -> None:
    for step in range(10):
        monitor.log(step=step, shard=shard, shards=8, **batch())


def test_many_threads_may_log_at_once() -> None:
    fake = Fake()
    with serving(fake), Monitor(fake.url, "r", attempt=0) as monitor:
        threads = [threading.Thread(target=log_as, args=(monitor, shard)) for shard in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (monitor.stats["logged"], monitor.stats["sent"], monitor.stats["pending_bytes"]) == (80, 80, 0)
    found = {(frame.envelope["step"], frame.envelope["shard"]) for frame in fake.frames()}
    assert found == {(step, shard) for step in range(10) for shard in range(8)}


SCRIPT = """
import sys
from offpolicy_monitor import Monitor
from tests.client.batches import batch
monitor = Monitor(sys.argv[1], "r")
for step in range(20):
    monitor.log(step=step, **batch())
"""


def test_what_is_queued_when_a_script_ends_is_sent() -> None:
    fake = Fake()
    with serving(fake):
        subprocess.run([sys.executable, "-c", SCRIPT, fake.url], check=True, timeout=WITHIN)
    assert fake.steps() == list(range(20))


def test_a_script_ends_though_nobody_takes_what_is_queued() -> None:
    with black_hole() as url:
        script = SCRIPT.replace('"r")', '"r", timeout=1.0)') + "import atexit; monitor.close(deadline=0.5)"
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", script, url], check=True, timeout=WITHIN)
        assert time.monotonic() - began < 10.0
