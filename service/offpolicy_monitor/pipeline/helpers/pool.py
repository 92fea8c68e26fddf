"""The helpers that a service has: as many as it may have while small shards come side by side, none while they do not.

One that dies, or that does not answer in time, is no longer asked, and another takes its place; its shard is done by
the thread that asked. So a helper can make the service quicker, and nothing else of it depends on one. Any thread asks;
one keeps their number up.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Final

import structlog

from offpolicy_monitor.pipeline.helpers.line import Line
from offpolicy_monitor.pipeline.helpers.parcel import Asked, Parcel
from offpolicy_monitor.retry import doubled
from offpolicy_monitor.wire.limits import Limits

log = structlog.get_logger("offpolicy_monitor.pipeline")

NURSERY: Final = "offpolicy_monitor.pipeline.helpers.nursery"
#: Shards between two looks, a second, that came beside another one: from so many on helpers pay. They end after so many
#: seconds with fewer.
MANY, REST_SECONDS = 64, 600.0
#: Seconds that a helper has for a shard, which takes it milliseconds; and that the nursery has to load what it needs.
ANSWER_SECONDS, START_SECONDS = 5.0, 60.0
#: Seconds until it is tried again after it failed, at first and at most.
FIRST_AGAIN, LAST_AGAIN = 2.0, 300.0


class Failed(Exception):
    """There is no process to be had; why."""


@dataclass(frozen=True)
class _Helper:
    """`handle`: a descriptor of the process, which stands for no other one when that has ended."""

    process: int
    handle: int
    line: Line

    def end(self) -> None:
        """End it, also where it stands still; it holds nothing."""
        self.line.close()
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.handle, signal.SIGKILL)
        os.close(self.handle)


class Helpers:
    """At most `most` of them, 0 for none at all, as where there is no Linux. `limits`: those of a body."""

    def __init__(self, most: int, limits: Limits) -> None:
        self._most, self._limits = most if sys.platform == "linux" else 0, limits
        self._idle: deque[_Helper] = deque()
        self._there, self._wanted, self._busy_at = 0, 0, 0.0
        self._nursery: _Nursery | None = None
        self._failures, self._not_before = 0, 0.0
        self._lock, self._closed = threading.Lock(), False

    def want(self) -> bool:
        """A shard came beside another one: whether a helper is there for it. That it came is noted."""
        self._wanted += 1
        return bool(self._idle)

    def ask(self, asked: Asked) -> Parcel | None:
        """What a helper makes of a shard; None where that is nothing, or no helper is there for it."""
        try:
            helper = self._idle.pop()  # the last one that was busy: what it needs is in its caches
        except IndexError:
            return None
        try:
            helper.line.send(asked)
            parcel: Parcel | None = helper.line.receive()
        except Exception as error:  # also of what it sent: the service measures by itself
            self._lose(helper, error)
            return None
        self._idle.append(helper)
        return parcel

    def keep_up(self) -> int:
        """Start those that are wanted and not there, and end those that are not wanted any more: how many were started.

        To be called each second, by one thread at a time.
        """
        now, wanted, self._wanted = time.monotonic(), self._wanted, 0
        if wanted >= MANY:
            self._busy_at = now
            return self._started(now)
        if self._there and now - self._busy_at > REST_SECONDS:
            self._end()
        return 0

    def close(self) -> None:
        """End all of them; nothing is asked any more."""
        with self._lock:
            self._closed = True
        self._end()

    def _started(self, now: float) -> int:
        if now < self._not_before:
            return 0
        started = 0
        try:
            while self._there < self._most and not self._closed:
                self._start()
                started += 1
            self._failures = 0
        except (Failed, EOFError, OSError) as error:
            self._end_nursery()
            if not self._closed:
                self._put_off(error)
        if self._closed:
            self._end_nursery()
        return started

    def _start(self) -> None:
        if self._nursery is None:
            self._nursery = _Nursery(self._limits)
        helper = self._nursery.helper()
        with self._lock:
            if self._closed:
                helper.end()
                return
            self._there += 1
            self._idle.append(helper)

    def _put_off(self, error: Exception) -> None:
        self._failures += 1
        seconds = doubled(self._failures, FIRST_AGAIN, LAST_AGAIN, chance=1.0)
        self._not_before = time.monotonic() + seconds
        log.warning("no process to measure small shards can be started", reason=str(error), again_after=seconds)

    def _lose(self, helper: _Helper, error: Exception) -> None:
        helper.end()
        with self._lock:
            self._there -= 1
        log.warning("a process that measures small shards is lost", process=helper.process, reason=str(error))

    def _end(self) -> None:
        """End those that have nothing to do, and the nursery."""
        with suppress(IndexError):
            while True:
                self._idle.pop().end()
                with self._lock:
                    self._there -= 1
        self._end_nursery()

    def _end_nursery(self) -> None:
        nursery, self._nursery = self._nursery, None
        if nursery is not None:
            nursery.end()


class _Nursery:
    """The process that helpers are forks of. Raises Failed where it cannot load what it needs."""

    def __init__(self, limits: Limits) -> None:
        self._line, its = Line.pair()
        with closing(its):
            command = [sys.executable, "-P", "-m", NURSERY, str(its.fileno())]
            quiet = subprocess.DEVNULL
            self._process = subprocess.Popen(
                command, pass_fds=[its.fileno()], stdin=quiet, stdout=quiet, stderr=quiet,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
            )  # fmt: skip
        try:
            self._line.wait_at_most(START_SECONDS)
            if (reason := self._line.receive()) is not None:
                raise Failed(reason)
            self._line.send(limits)
        except BaseException:
            self.end()
            raise

    def helper(self) -> _Helper:
        """A new one."""
        own, its = Line.pair()
        try:
            own.wait_at_most(ANSWER_SECONDS)
            self._line.send_line(its)
            process: int = own.receive()
            return _Helper(process, os.pidfd_open(process), own)
        except BaseException:
            own.close()
            raise

    def end(self) -> None:
        """End it; its helpers end with it."""
        self._process.kill()
        self._process.wait()
        self._line.close()
