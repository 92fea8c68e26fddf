"""Patience: for how many more seconds this thread waits for the database, over all that one transaction asks of it.

A server that hangs, or a network that swallows what is sent, answers nothing and closes nothing, so the waiting side
must end the wait. What the thread computes between two questions costs no patience. Knows no database.
"""

import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from offpolicy_monitor import interpreter

Answer = TypeVar("Answer")
_of_thread = threading.local()


class OutOfPatience(Exception):
    """The database did not answer in time. Whether it has done what it was told is not known."""


class Patience:
    """Seconds that may still be waited. Inside of it, this thread waits so long for the database."""

    def __init__(self, seconds: float) -> None:
        self.seconds = self.left = seconds
        self._before: Patience | None = None

    def __enter__(self) -> "Patience":
        self._before, _of_thread.patience = current(), self
        return self

    def __exit__(self, *raised: object) -> None:
        _of_thread.patience = self._before

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """What is done inside is waiting; others may compute meanwhile, and until they have nothing is waited for."""
        with interpreter.waiting():
            began = time.monotonic()
            try:
                yield
            finally:
                self.left -= time.monotonic() - began

    def check(self) -> None:
        """Raises OutOfPatience where nothing is left."""
        if self.left <= 0:
            raise OutOfPatience(f"no answer within {self.seconds:g} s")


def current() -> Patience | None:
    """The patience of this thread; None where it has no end."""
    found: Patience | None = getattr(_of_thread, "patience", None)
    return found


def patiently(conversation: Generator[Any, Any, Answer], patience: Patience) -> Generator[Any, Any, Answer]:
    """The same conversation with a socket, ended by OutOfPatience.

    It yields what it waits for and is sent what is ready: something false where nothing is, which whoever waits must do
    now and then.
    """
    try:
        wanted = next(conversation)
        while True:
            with patience.waiting():
                ready = yield wanted
            if not ready:
                patience.check()
            wanted = conversation.send(ready)
    except StopIteration as end:
        answer: Answer = end.value
        return answer
