"""The interpreter, which runs one thread at a time: of those that compute for long in Python, one wants it at a time.

A thread that lets go of the interpreter often, as measuring does with each operation on tensors, waits for one switch
interval for every thread that wants it before it gets it back. Those that compute for long therefore take turns among
themselves, and let others of them compute while they wait for a database.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Seconds that one waits for its turn; then it computes all the same. What has the turn may hang.
LONGEST: Final = 2.0
_turn = threading.Lock()
_of_thread = threading.local()


@contextmanager
def computing() -> Iterator[None]:
    """The block computes for long in Python, in its turn. Not to be entered twice by a thread."""
    _take()
    try:
        yield
    finally:
        _let_go()


@contextmanager
def waiting() -> Iterator[None]:
    """The block waits for something else. Where the thread was computing, its turn is another's meanwhile."""
    if not _let_go():
        yield
        return
    try:
        yield
    finally:
        _take()


def _take() -> None:
    _of_thread.has_turn = _turn.acquire(timeout=LONGEST)
    _of_thread.computes = True


def _let_go() -> bool:
    """Whether this thread was computing."""
    computes: bool = getattr(_of_thread, "computes", False)
    if computes and _of_thread.has_turn:
        _turn.release()
    _of_thread.computes = _of_thread.has_turn = False
    return computes
