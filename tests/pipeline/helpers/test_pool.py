"""Helpers are there while they are wanted; one that dies or stands still costs nothing but time, and none outlives."""

import os
import pickle
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import structlog
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.pipeline.decoder import limits_of
from offpolicy_monitor.pipeline.helpers import pool
from offpolicy_monitor.pipeline.helpers.line import Line
from offpolicy_monitor.pipeline.helpers.parcel import Asked
from offpolicy_monitor.pipeline.helpers.pool import Helpers
from offpolicy_monitor.pipeline.remembered import Rows
from offpolicy_monitor.settings import Settings

from tests.fixtures.application import good_frame
from tests.fixtures.forks import started
from tests.fixtures.fused import CACHE, cached_pass
from tests.fixtures.prometheus import wait_for
from tests.fixtures.workers import is_alive, processes

ROOT = Path(__file__).parents[3]
LIMITS = limits_of(Settings())
ASKED = Asked.of("r1", memoryview(good_frame()), Rows(None, PRESETS), 0.0)


@contextmanager
def helpers(most: int = 2) -> Iterator[Helpers]:
    made = Helpers(most, LIMITS)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cached_pass()))


@pytest.fixture(scope="module")
def shared() -> Iterator[Helpers]:
    """One pool for the tests that begin with all of its helpers, since a nursery takes two seconds to load."""
    with helpers() as found:
        yield found


@pytest.fixture
def found(shared: Helpers) -> Helpers:
    """The same with two helpers."""
    kept_up(shared)
    wait_for(lambda: len(there()) == 2)
    return shared


def kept_up(found: Helpers, wanted: int = pool.MANY) -> int:
    """How many are started after so many shards that came beside others."""
    for _ in range(wanted):
        assert isinstance(found.want(), bool)
    return found.keep_up()


def there(known: frozenset[int] = frozenset()) -> list[int]:
    """The processes of helpers, children of nurseries, which are children of this process; without those known."""
    nurseries = [own for own in processes(os.getpid()) if b"nursery" in command(own)]
    return [child for own in nurseries for child in processes(own) if child not in known and is_alive(child)]


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def unpicklable(line: Line) -> None:
    raise pickle.UnpicklingError("no pickle")


def command(process: int) -> bytes:
    return Path(f"/proc/{process}/cmdline").read_bytes()


def test_they_answer_side_by_side_and_a_third_shard_is_left_to_the_service(found: Helpers) -> None:
    assert [found.ask(ASKED) is not None for _ in range(4)] == [True] * 4
    first, second = found._idle.pop(), found._idle.pop()
    assert not found.want()
    assert found.ask(ASKED) is None
    found._idle.extend((first, second))


def test_they_have_no_torch_and_one_thread_and_end_before_the_service_where_memory_runs_out(found: Helpers) -> None:
    assert found.ask(ASKED) is not None
    for process in there():
        assert "libtorch" not in Path(f"/proc/{process}/maps").read_text()
        assert "Threads:\t1\n" in Path(f"/proc/{process}/status").read_text()
        assert Path(f"/proc/{process}/oom_score_adj").read_text() == "1000\n"


def test_one_that_is_killed_is_replaced(found: Helpers) -> None:
    killed = found._idle[-1].process
    os.kill(killed, signal.SIGKILL)
    with structlog.testing.capture_logs() as said:
        assert found.ask(ASKED) is None
    assert [(one["event"], one["process"], one["reason"]) for one in said] == [
        ("a process that measures small shards is lost", killed, "it has ended")
    ]
    assert found.ask(ASKED) is not None  # by the other one
    assert kept_up(found) == 1
    wait_for(lambda: len(there()) == 2)


def test_one_that_stands_still_is_ended_and_replaced(found: Helpers) -> None:
    for asked in (ASKED, ASKED._replace(frame=bytes(400_000))):  # one that a line holds, and one that it does not
        stopped = found._idle[-1]
        stopped.line.wait_at_most(0.2)
        os.kill(stopped.process, signal.SIGSTOP)
        with structlog.testing.capture_logs() as said:
            assert found.ask(asked) is None
        assert said[0]["reason"] == "no answer in time"
        wait_for(partial(lambda process: not is_alive(process), stopped.process))
        assert kept_up(found) == 1
        wait_for(lambda: len(there()) == 2)


def test_whatever_goes_wrong_with_one_it_is_replaced(found: Helpers, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Line, "receive", unpicklable)
        assert found.ask(ASKED) is None
    assert kept_up(found) == 1
    wait_for(lambda: len(there()) == 2)


def test_there_are_none_until_many_shards_come_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    before = frozenset(there())
    with helpers() as found:
        assert kept_up(found, pool.MANY - 1) == 0
        assert not there(before)
        assert found.ask(ASKED) is None
        assert kept_up(found, 1) == 0  # each second for itself
        assert kept_up(found) == 2
        own = there(before)
        assert len(own) == 2
        assert kept_up(found) == kept_up(found, 1) == 0
        assert there(before) == own
        # Without work for long they end, and come again.
        monkeypatch.setattr(pool, "REST_SECONDS", 0.0)
        assert kept_up(found, 1) == 0
        wait_for(lambda: not any(map(is_alive, own)))
        assert not found.want()
        assert found.ask(ASKED) is None


def test_a_nursery_that_is_killed_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "FIRST_AGAIN", 0.0)
    before = frozenset(there())
    with helpers(most=1) as found:
        kept_up(found)
        nursery, (helper,) = found._nursery, there(before)
        assert nursery is not None
        nursery._process.kill()
        wait_for(lambda: not is_alive(helper))  # its helpers end with it
        assert found.ask(ASKED) is None
        assert kept_up(found) == 0
        assert kept_up(found) == 1
        assert found.ask(ASKED) is not None


def test_where_none_can_be_started_it_is_said_and_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # there is no pass
    monkeypatch.setattr(pool, "FIRST_AGAIN", 0.5)
    with helpers() as found, structlog.testing.capture_logs() as said:
        assert kept_up(found) == kept_up(found) == 0
        assert [(one["event"], one["reason"]) for one in said] == [
            ("no process to measure small shards can be started",
             "FileNotFoundError: the compiled pass is no longer there")
        ]  # fmt: skip
        monkeypatch.setenv("XDG_CACHE_HOME", str(CACHE))
        wait_for(lambda: kept_up(found) == 2)


def test_none_is_there_where_none_is_wanted_by_the_settings() -> None:
    before = there()
    with helpers(most=0) as found:
        assert kept_up(found) == 0
        assert there() == before


def test_they_end_with_the_service_however_it_ends() -> None:
    """A process that has helpers and is killed leaves none behind; it is the same with one that ends."""
    text = (
        f"import sys, time; sys.path.append({str(ROOT)!r})\n"
        "from tests.pipeline.helpers.test_pool import Helpers, LIMITS, kept_up, there\n"
        "found = Helpers(2, LIMITS); kept_up(found); print(*there(), flush=True); time.sleep(60)"
    )
    with started(["-c", text], os.environ) as (service, said):
        left = [int(process) for process in said.readline().split()]
        assert len(left) == 2
        for signalled in (signal.SIGTERM, signal.SIGINT):  # sent to all, as a terminal does
            for process in left:
                os.kill(process, signalled)
        time.sleep(0.1)
        assert all(map(is_alive, left))
        nursery = parent(left[0])
        for process in (left[0], nursery):  # also where they stand still
            os.kill(process, signal.SIGSTOP)
        service.kill()
    left.append(nursery)
    wait_for(lambda: not any(map(is_alive, left)))
