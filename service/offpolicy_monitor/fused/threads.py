"""Threads that measure one batch together. The calling one works too, and waits for none that has not begun: where the
machine is busy elsewhere it does all by itself, and a batch of one part is handed to nobody.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final, Generic, TypeVar

from offpolicy_monitor.slices import Slices

Found = TypeVar("Found")


class Threads:
    """`number` threads, the one that calls among them."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._others = ThreadPoolExecutor(number - 1, thread_name_prefix="fused") if number > 1 else None

    def each(self, parts: int, work: Callable[[int], Found], then: Callable[[Found], None]) -> Slices[None]:
        """Call `work` with the number of each part, and `then` with what it gave, in order and one at a time.

        A thread alone does a part a slice, several do all of them in one; raises what any of them raises.
        """
        if self._others is None or parts < 2:
            for number in range(parts):
                then(work(number))
                yield
            return
        numbers, given = iter(range(parts)), _InOrder(then)

        def some() -> Iterator[None]:
            for number in numbers:
                given.put(number, work(number))
                yield

        others = [self._others.submit(_finish, some()) for _ in range(min(self._number, parts) - 1)]
        try:
            _finish(some())
        finally:
            begun = [other for other in others if not other.cancel()]
            wait(begun)
        for other in begun:
            other.result()


#: The calling thread and no other.
ALONE: Final = Threads(1)


class _InOrder(Generic[Found]):
    """Passes on what comes in any order, as soon as what belongs before it has come."""

    def __init__(self, then: Callable[[Found], None]) -> None:
        self._then, self._next, self._lock = then, 0, threading.Lock()
        self._waiting: dict[int, Found] = {}

    def put(self, number: int, found: Found) -> None:
        with self._lock:
            self._waiting[number] = found
            while self._next in self._waiting:
                self._then(self._waiting.pop(self._next))
                self._next += 1


def _finish(some: Iterator[None]) -> None:
    deque(some, 0)
