"""Slices: work on the device in parts, between which it may do something else, or the work may be given up."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import TypeVar

Result = TypeVar("Result")
#: Work that stops after each slice; what it comes to is returned at the end.
Slices = Generator[None, None, Result]


def finished(work: Slices[Result]) -> Result:
    """Do all of the work without a stop."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: Result = end.value
            return result


def one_at_a_time(lock: AbstractContextManager[object], work: Slices[Result]) -> Slices[Result]:
    """The same work, of which each slice holds a lock."""
    while True:
        with lock:
            try:
                next(work)
            except StopIteration as end:
                result: Result = end.value
                return result
        yield


def in_one(run: Callable[[int], Result]) -> Callable[[int], Slices[Result]]:
    """Work that has no parts, as one slice."""

    def work(block_tokens: int) -> Slices[Result]:
        yield
        return run(block_tokens)

    return work
