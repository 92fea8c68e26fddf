"""Notifier: a daemon thread for each target, so that one that hangs delays no other, and no request ever.

A boundary: whatever fails in a lane is logged and survived. Knows targets only as something to call again.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import structlog

from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.notify import http
from offpolicy_monitor.notify.ports import AlertSource, Outcome, Ports, Post, Reply, Target

log = structlog.get_logger("offpolicy_monitor.notify")

#: A lane looks at least this often, seconds: alerts of the wall clock come without a step.
INTERVAL: Final = 60.0


def _uncounted(target: str, outcome: Outcome) -> None:
    """Nobody counts."""


def _always() -> bool:
    """Nobody else tells."""
    return True


class Notifier:
    """Tells each target what the source has for it, from `start` to `close`.

    Nothing is told while `may_tell` answers False: another process does it then. It is asked again before each post.
    """

    def __init__(
        self,
        source: AlertSource,
        targets: Sequence[Target],
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = time.monotonic,
        send: Callable[[Post], Reply] = http.send,
        count: Callable[[str, Outcome], None] = _uncounted,
        interval: float = INTERVAL,
        may_tell: Callable[[], bool] = _always,
    ) -> None:
        ports = Ports(source, send, clock, elapsed, count)
        self._lanes = [_Lane(target, ports, interval, may_tell) for target in targets]

    def start(self) -> None:
        """Begin, with what is waiting."""
        for lane in self._lanes:
            lane.start()

    def wake(self) -> None:
        """Something may have changed. Never blocks."""
        for lane in self._lanes:
            lane.woken.set()

    def close(self, timeout: float) -> None:
        """Begin nothing further, and wait this long, in seconds, for what is under way; what is untold stays so."""
        deadline = time.monotonic() + timeout
        for lane in self._lanes:
            lane.stop()
        for lane in self._lanes:
            lane.join(max(0.0, deadline - time.monotonic()))


class _Lane(threading.Thread):
    def __init__(self, target: Target, ports: Ports, interval: float, may_tell: Callable[[], bool]) -> None:
        super().__init__(name=f"notify-{target.kind}", daemon=True)
        self.woken = threading.Event()
        self._stopped = threading.Event()
        self._target, self._interval, self._may_tell = target, interval, may_tell
        self._ports = replace(ports, send=self._send_unless_stopped(ports.send))

    def run(self) -> None:
        while True:
            # Cleared before it is asked whether to stop: a stop in between is then not waited for.
            self.woken.clear()
            if self._stopped.is_set():
                return
            delay = self._deliver()
            self.woken.wait(min(delay, self._interval))

    def stop(self) -> None:
        self._stopped.set()
        self.woken.set()

    def join(self, timeout: float | None = None) -> None:
        if self.ident is not None:
            super().join(timeout)

    def _deliver(self) -> float:
        if not self._may_tell():
            return self._interval
        try:
            return self._target.deliver(self._ports)
        except _Stopped:
            return 0.0
        except _Silenced:
            return self._interval
        except Unavailable as error:
            log.warning("notifications put off", target=self._target.kind, reason=error.detail)
        except Exception as error:  # the thread's boundary: the next turn tells what this one could not
            log.error("notifications failed", target=self._target.kind, exc_info=error)
        return self._interval

    def _send_unless_stopped(self, send: Callable[[Post], Reply]) -> Callable[[Post], Reply]:
        def guarded(post: Post) -> Reply:
            if self._stopped.is_set():
                raise _Stopped
            if not self._may_tell():
                raise _Silenced
            return send(post)

        return guarded


class _Stopped(Exception):
    """The lane ends before another post."""


class _Silenced(Exception):
    """From now on another process tells."""
