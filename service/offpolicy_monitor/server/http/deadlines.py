"""Deadlines of an event loop on one timer, and waiting that begins only where there is something to wait for.

Nearly every deadline is cancelled. A timer of uvloop that is cancelled has the loop turn once more to close it, and
want the interpreter's lock for that just when the thread that measures a shard has begun.
"""

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Final, Generic, TypeVar

Found = TypeVar("Found")

#: Seconds by which a timer may be early: loops count milliseconds.
EARLY: Final = 0.001


class Deadline:
    """What is called when its time has come, unless it is cancelled before; then it holds on to nothing."""

    __slots__ = ("_among", "_call", "when")

    def __init__(self, when: float, call: Callable[[], object], among: "dict[Deadline, None]") -> None:
        self.when, self._among = when, among
        self._call: Callable[[], object] | None = call
        among[self] = None

    def cancel(self) -> None:
        """Nothing once it was called."""
        self._among.pop(self, None)
        # Who is to be called has this deadline most of the time, and would wait for the collector of garbage.
        self._call = None

    def comes(self, loop: asyncio.AbstractEventLoop) -> None:
        """Its time has come: it is called next, unless one that is called before cancels it."""
        del self._among[self]
        loop.call_soon(self._end)

    def _end(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()


class Deadlines:
    """An event loop of which what is to come later is on one timer; the loop itself in all else."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: Those of as many seconds each, which end in the order in which they began.
        self._of: dict[float, dict[Deadline, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next = math.inf

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def are_of(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether it is this loop's."""
        return self._loop is loop

    def call_later(self, seconds: float, call: Callable[..., object], *arguments: Any) -> Deadline:
        """Call it in so many seconds, a millisecond earlier at most."""
        among = self._of.setdefault(seconds, {})
        deadline = Deadline(self._loop.time() + seconds, partial(call, *arguments) if arguments else call, among)
        if deadline.when < self._next:
            self._wait_until(deadline.when)
        return deadline

    def _wait_until(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next, self._timer = when, self._loop.call_at(when, self._look)

    def _look(self) -> None:
        """End what is over, and wait for the first of the others."""
        self._timer, self._next, now = None, math.inf, self._loop.time() + EARLY
        firsts = []
        for seconds, among in list(self._of.items()):
            while among and (first := next(iter(among))).when <= now:
                first.comes(self._loop)
            if among:
                firsts.append(first.when)
            else:
                del self._of[seconds]
        if firsts:
            self._wait_until(min(firsts))


class _Here(threading.local):
    """A thread runs one loop at a time."""

    deadlines: Deadlines | None = None


_HERE: Final = _Here()


def deadlines_of(loop: asyncio.AbstractEventLoop) -> Deadlines:
    """Those of the loop of this thread, the same each time."""
    if _HERE.deadlines is None or not _HERE.deadlines.are_of(loop):
        _HERE.deadlines = Deadlines(loop)
    return _HERE.deadlines


class Begun(Generic[Found]):
    """What is awaited, run until it first waits: `is_there` where it had nothing to wait for; to be awaited once."""

    def __init__(self, awaited: Awaitable[Found]) -> None:
        self._rest = awaited.__await__()
        self.is_there, self._waits_for = False, None
        self._found: Any = None
        try:
            self._waits_for = next(self._rest)
        except StopIteration as end:
            self.is_there, self._found = True, end.value

    def __await__(self) -> Generator[Any, Any, Found]:
        if self.is_there:
            found: Found = self._found
            return found
        waits_for = self._waits_for
        try:
            while True:
                try:
                    sent = yield waits_for
                except BaseException as error:  # cancelled: it is the one to be told
                    waits_for = self._rest.throw(error)
                else:
                    waits_for = self._rest.send(sent)
        except StopIteration as end:
            found = end.value
            return found
