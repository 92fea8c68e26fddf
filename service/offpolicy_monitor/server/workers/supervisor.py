"""Supervisor: the process that listens, hands each connection to the worker that has the fewest, and replaces the dead.

Workers are forks of it, which has imported what they need and computes nothing: it has no thread, no event loop and no
connection of its own. It knows channels and processes; no HTTP, no database, no metrics.
"""

import json
import os
import selectors
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import structlog

from offpolicy_monitor.commandline import SETUP_WRONG
from offpolicy_monitor.errors import ConfigurationError, OffpolicyMonitorError
from offpolicy_monitor.server.workers import channel as said
from offpolicy_monitor.server.workers.board import Board
from offpolicy_monitor.server.workers.channel import Channel, Gone, pair
from offpolicy_monitor.server.workers.roster import Load, Waits, excess, in_order

log = structlog.get_logger("offpolicy_monitor.server")
#: Connections taken before anything else is looked at.
TAKEN_AT_ONCE: Final = 64
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

#: What a worker does in its own process, by its number and its channel; answers the exit status.
Work = Callable[[int, Channel], int]


class DiedStarting(OffpolicyMonitorError):
    """A worker ended before it served, without a word."""


@dataclass(eq=False)
class _Worker:
    """One place; `due`: when the next process is to be started in it, None while there is one."""

    number: int
    due: float | None = 0.0
    pid: int = 0
    channel: Channel | None = None
    born: float = 0.0
    device: str = ""
    serves: bool = False
    leaves: bool = False
    missed: bool = False
    stood_still: bool = False
    load: Load = field(default_factory=Load)
    waits: Waits = field(default_factory=Waits)


class Supervisor:
    """Of so many workers on one listener, which is bound and does not listen yet."""

    def __init__(self, listener: socket.socket, workers: int, work: Work, board: Board, end_within: float) -> None:
        self._listener, self._work, self._board, self._end_within = listener, work, board, end_within
        self._workers = [_Worker(number) for number in range(workers)]
        self._selector = selectors.DefaultSelector()
        self._held: socket.socket | None = None
        self._accepts = False
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
                    self._listener.listen(backlog)
                    self._listener.setblocking(False)
                    self._accept(True)
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
            elif key.fileobj is self._listener:
                self._take()
            elif key.data.channel is not None:
                self._hear(key.data)
        now = time.monotonic()
        for worker in self._workers:
            if worker.due is not None and worker.due <= now and self._has_started and self._told is None:
                self._start(worker)

    def _wait(self) -> float | None:
        dues = [worker.due for worker in self._workers if worker.due is not None] if self._has_started else []
        return max(0.0, min(dues) - time.monotonic()) if dues else None

    # Processes

    def _start(self, worker: _Worker) -> None:
        ours, theirs = pair()
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        pid = os.fork()
        if pid == 0:
            self._become(worker.number, ours, theirs)
        theirs.close()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        worker.pid, worker.channel, worker.born, worker.due = pid, ours, time.monotonic(), None
        worker.load, worker.missed, worker.stood_still = Load(), False, False
        self._selector.register(ours, selectors.EVENT_READ, worker)

    def _become(self, number: int, ours: Channel, theirs: Channel) -> NoReturn:
        """The new process: nothing of the supervisor's is left open in it, and it never comes back."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            # Until it serves it ends by SIGTERM at once; a Ctrl-C is of the supervisor, which says what follows.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            ours.close()
            self._listener.close()
            self._selector.close()
            for other in self._workers:
                if other.channel is not None:
                    other.channel.close()
            status = self._work(number, theirs)
        except OffpolicyMonitorError as error:
            status = SETUP_WRONG if is_setup(error) else 1
            theirs.send(said.FAILED + json.dumps([status, str(error)]).encode()[: said.LONGEST - 1])
        except BaseException:
            traceback.print_exc()
        finally:
            flush()
            os._exit(status)

    def _ended(self, worker: _Worker) -> None:
        """A worker is no more: say so, and see to the next one."""
        assert worker.channel is not None
        self._selector.unregister(worker.channel)
        worker.channel.close()
        status = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        self._board.gone(worker.number)
        served, left = worker.serves, worker.leaves
        worker.channel, worker.serves, worker.leaves = None, False, False
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
        if self._accepts:
            self._take()
        self._accept(False)
        self._listener.close()
        if self._held is not None:
            self._held.close()
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
            if not worker.serves:
                self._signal(worker, signal.SIGTERM)
            worker.channel.send(said.STOP + bytes([number]))

    def _kill_all(self) -> None:
        for worker in self._workers:
            if worker.channel is not None:
                log.error("a worker did not end in time, and is killed", worker=worker.number + 1, pid=worker.pid)
                self._signal(worker, signal.SIGKILL)

    def _signal(self, worker: _Worker, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(worker.pid, number)

    # Connections

    def _take(self) -> None:
        """Take connections, and hand each on."""
        for _ in range(TAKEN_AT_ONCE):
            if self._held is None:
                try:
                    self._held, _ = self._listener.accept()
                except OSError:  # none is left, or no descriptor is: the kernel keeps them
                    return
                with suppress(OSError):
                    self._held.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not self._handed(self._held):
                self._accept(False)
                return
            self._held.close()
            self._held = None

    def _handed(self, connection: socket.socket) -> bool:
        """Whether a worker gets it; else it waits, as all do after it, until one can take it."""
        now = time.monotonic()
        serving = [worker for worker in self._workers if worker.serves and not worker.leaves]
        for worker in serving:
            self._note_standstill(worker, now)
        for number in in_order([worker.load for worker in serving], now):
            worker = serving[number]
            assert worker.channel is not None
            if worker.channel.send(said.CONNECTION, connection):
                worker.load.hand(now)
                return True
        return False

    def _accept(self, accepts: bool) -> None:
        if accepts == self._accepts:
            return
        self._accepts = accepts
        if accepts:
            self._selector.register(self._listener, selectors.EVENT_READ)
        else:
            self._selector.unregister(self._listener)

    def _note_standstill(self, worker: _Worker, now: float) -> None:
        if worker.load.stands_still(now) != worker.stood_still:
            worker.stood_still = not worker.stood_still
            if worker.stood_still:
                log.error("a worker stands still: others get its connections", worker=worker.number + 1, pid=worker.pid)
            else:
                log.info("a worker goes on", worker=worker.number + 1, pid=worker.pid)

    # Messages

    def _hear(self, worker: _Worker) -> None:
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
            self._accept(True)

    def _heard(self, worker: _Worker, message: bytes) -> None:
        kind, content = message[:1], message[1:]
        now = time.monotonic()
        if kind == said.LOAD:
            taken, open = (int.from_bytes(content[at : at + 4], "big") for at in (0, 4))
            worker.load.told(taken, open, now)
            self._note_standstill(worker, now)
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

    def _relay(self, sender: _Worker, to: int, content: bytes) -> None:
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


def alone() -> None:
    """Return when no other thread runs: a fork has only the one that forked, and what others held would stay held."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(5.0)


def is_setup(error: OffpolicyMonitorError) -> bool:
    """Whether the operator has to mend the setup."""
    from offpolicy_monitor.errors import Unavailable

    return isinstance(error, ConfigurationError | Unavailable)


def how(status: int) -> str:
    """How a process ended."""
    return f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"


def flush() -> None:
    """What was said is written."""
    import logging
    import sys

    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
