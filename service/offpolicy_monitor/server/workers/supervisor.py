"""Supervisor: the process that listens, starts workers, tells them what others say, and replaces the dead.

Workers are forks of it, which has imported what they need and computes nothing: it has no thread, no event loop and no
connection of its own. It knows channels and processes; no HTTP, no database, no metrics.
"""

import json
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import structlog

from offpolicy_monitor.commandline import SETUP_WRONG
from offpolicy_monitor.errors import ConfigurationError, OffpolicyMonitorError
from offpolicy_monitor.server.workers import channel as said
from offpolicy_monitor.server.workers.board import Board
from offpolicy_monitor.server.workers.channel import Gone
from offpolicy_monitor.server.workers.door import Door
from offpolicy_monitor.server.workers.roster import excess
from offpolicy_monitor.server.workers.seat import SIGNALS, Seat, Work, alone, how

log = structlog.get_logger("offpolicy_monitor.server")


class DiedStarting(OffpolicyMonitorError):
    """A worker ended before it served, without a word."""


class Supervisor:
    """Of so many workers on one listener, which is bound and does not listen yet."""

    def __init__(self, listener: socket.socket, workers: int, work: Work, board: Board, end_within: float) -> None:
        self._work, self._board, self._end_within = work, board, end_within
        self._workers = [Seat(number) for number in range(workers)]
        self._selector = selectors.DefaultSelector()
        self._door = Door(listener, self._workers, self._selector)
        self._told: int | None = None
        self._failure: OffpolicyMonitorError | None = None
        self._has_started = False

    def run(self, started: Callable[[str], None], backlog: int) -> int:
        """Serve until a signal says to stop, which is the answer. `started` is told what computes.

        Raises what keeps a worker from starting, once, when no worker runs any more.
        """
        alone()
        with self._signals() as told:
            try:
                # One before the others: what keeps it from starting keeps them all, and is said once.
                self._start(self._workers[0])
                self._until(told, lambda: self._workers[0].serves)
                for worker in self._workers[1:]:
                    self._start(worker)
                self._until(told, lambda: all(worker.serves for worker in self._workers))
                if self._told is None:
                    self._has_started = True
                    self._door.open(backlog)
                    started(self._workers[0].device)
                    self._until(told, lambda: False)
            finally:
                self._end(told)
        if self._failure is not None:
            raise self._failure
        assert self._told is not None
        return self._told

    def _until(self, told: socket.socket, holds: Callable[[], bool]) -> None:
        """Do what comes, until something holds, a signal says to stop, or a worker cannot start."""
        while self._told is None and self._failure is None and not holds():
            self._turn(told, self._wait())

    def _turn(self, told: socket.socket, seconds: float | None) -> None:
        for key, _ in self._selector.select(seconds):
            if key.fileobj is told:
                self._signalled(told)
            elif key.fileobj is self._door.listener:
                self._door.take()
            elif key.data.channel is not None:
                self._hear(key.data)
        now = time.monotonic()
        self._door.look(now)
        for worker in self._workers:
            if worker.due is not None and worker.due <= now and self._has_started and self._told is None:
                self._start(worker)

    def _wait(self) -> float | None:
        now = time.monotonic()
        dues = [worker.due for worker in self._workers if worker.due is not None] if self._has_started else []
        waits = [max(0.0, due - now) for due in dues]
        if (look := self._door.wait(now)) is not None:
            waits.append(look)
        return min(waits, default=None)

    # Processes

    def _start(self, worker: Seat) -> None:
        self._selector.register(worker.begin(self._work, self._leave), selectors.EVENT_READ, worker)

    def _leave(self) -> None:
        """In a worker: nothing of this process stays open."""
        self._door.leave()
        self._selector.close()
        for other in self._workers:
            if other.channel is not None:
                other.channel.close()

    def _ended(self, worker: Seat) -> None:
        """A worker is no more: say so, and see to the next one."""
        assert worker.channel is not None
        self._selector.unregister(worker.channel)
        served, left = worker.serves, worker.leaves
        status = worker.ended()
        self._board.gone(worker.number)
        if self._told is not None or self._failure is not None:
            return
        lived = time.monotonic() - worker.born
        if not self._has_started:
            self._failure = DiedStarting(f"a worker could not start: {how(status)}; its log says more")
            return
        wait = 0.0 if left else worker.waits.next(lived)
        worker.due = time.monotonic() + wait
        which: dict[str, Any] = {"worker": worker.number + 1, "pid": worker.pid, "ended": how(status)}
        if left:
            log.info("a worker was told to end, and is replaced", **which)
        else:
            what = "a worker died, and is replaced" if served else "a worker could not start, and is tried again"
            log.error(what, **which, lived_seconds=round(lived, 1), wait_seconds=wait)

    def _end(self, told: socket.socket) -> None:
        """Stop everything: what has connected is served, what was begun is answered, in the time that was promised."""
        deadline = time.monotonic() + self._end_within
        self._door.close()
        self._stop_all(self._told or signal.SIGTERM)
        again = self._told
        while any(worker.channel is not None for worker in self._workers):
            left = deadline - time.monotonic()
            if left <= 0:
                self._kill_all()
                left = 1.0
            self._turn(told, left)
            if self._told != again:
                again = self._told
                self._stop_all(again or signal.SIGTERM)
        self._selector.close()

    def _stop_all(self, number: int) -> None:
        for worker in self._workers:
            if worker.channel is None:
                continue
            sent = worker.channel.send(said.STOP + bytes([number]))
            if not (sent and worker.serves):  # one that is too far behind to be told answers the signal, and is told
                worker.signal(signal.SIGTERM)

    def _kill_all(self) -> None:
        for worker in self._workers:
            if worker.channel is not None:
                log.error("a worker did not end in time, and is killed", worker=worker.number + 1, pid=worker.pid)
                worker.signal(signal.SIGKILL)

    # Messages

    def _hear(self, worker: Seat) -> None:
        """What a worker has to say, or that it is no more."""
        assert worker.channel is not None
        while True:
            try:
                got = worker.channel.receive()
            except Gone:
                self._ended(worker)
                break
            if got is None:
                break
            self._heard(worker, got[0])
        if self._has_started and self._told is None and any(each.serves for each in self._workers):
            self._door.accept(True)

    def _heard(self, worker: Seat, message: bytes) -> None:
        kind, content = message[:1], message[1:]
        now = time.monotonic()
        if kind == said.LOAD:
            taken, open = (int.from_bytes(content[at : at + 4], "big") for at in (0, 4))
            worker.load.told(taken, open, now)
            self._door.note_standstill(worker, now)
            if worker.missed and worker.channel is not None:
                worker.missed = not worker.channel.send(said.MISSED)
        elif kind == said.RELAY:
            self._relay(worker, content[0], content[1:])
        elif kind == said.SERVES:
            worker.serves, worker.device = True, content.decode()
            self._board.serves(worker.number)
            log.info("a worker serves", worker=worker.number + 1, pid=worker.pid)
            if self._has_started:
                self._even_out()
        elif kind == said.LEAVES and not worker.leaves:
            worker.leaves = True
            if worker.channel is not None:
                worker.channel.send(said.STOP + bytes([signal.SIGTERM]))
        elif kind == said.FAILED:
            status, text = json.loads(content)
            if self._has_started:
                log.error("a worker cannot start", worker=worker.number + 1, reason=text)
            elif self._failure is None:
                self._failure = ConfigurationError(text) if status == SETUP_WRONG else OffpolicyMonitorError(text)

    def _relay(self, sender: Seat, to: int, content: bytes) -> None:
        for worker in self._workers:
            if worker is sender or worker.channel is None or to not in (said.ALL, worker.number):
                continue
            sent = worker.channel.send(said.RELAY + bytes([sender.number]) + content)
            worker.missed = worker.missed or not sent

    def _even_out(self) -> None:
        """A worker has come to those that have all connections: they let some go, which come back to it."""
        serving = [worker for worker in self._workers if worker.serves]
        for worker, most in zip(serving, excess(worker.load for worker in serving), strict=True):
            if most and worker.channel is not None:
                worker.channel.send(said.SHED + most.to_bytes(4, "big"))

    # Signals

    @contextmanager
    def _signals(self) -> Iterator[socket.socket]:
        """Inside, a signal to stop makes a socket readable."""
        told, tells = socket.socketpair()
        for end in (told, tells):
            end.setblocking(False)
        former = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
        before = signal.set_wakeup_fd(tells.fileno(), warn_on_full_buffer=False)
        self._selector.register(told, selectors.EVENT_READ)
        try:
            yield told
        finally:
            signal.set_wakeup_fd(before)
            for number, handler in former.items():
                signal.signal(number, handler)
            told.close()
            tells.close()

    def _signalled(self, told: socket.socket) -> None:
        with suppress(BlockingIOError):
            for number in told.recv(64):
                if number in SIGNALS:
                    self._told = number
