"""Timing by turns: every candidate once per round, so that what else the machine does falls on all alike. Medians
count.

Progress goes to standard error: one line that is rewritten on a terminal, one line per part elsewhere.
"""

import statistics
import sys
import time
from collections.abc import Callable, Mapping

Work = Callable[[], object]
NANOSECONDS = 1e9


class Progress:
    """Says what is being measured; `part` begins a part, `step` counts within it."""

    def __init__(self) -> None:
        self._on_terminal = sys.stderr.isatty()
        self._began = time.monotonic()
        self._name = ""

    def part(self, name: str) -> None:
        self._name = name
        self._write(name, end="" if self._on_terminal else "\n")

    def step(self, number: int, of: int, what: str = "") -> None:
        if self._on_terminal:
            self._write(f"{self._name} {what} {number}/{of}", end="")

    def close(self) -> None:
        self._write("done", end="\n")

    def _write(self, text: str, end: str) -> None:
        erase = "\r\033[K" if self._on_terminal else ""
        sys.stderr.write(f"{erase}[{time.monotonic() - self._began:4.0f} s] {text}{end}")
        sys.stderr.flush()


def by_turns(
    candidates: Mapping[str, Callable[[], float]],
    rounds: int,
    progress: Progress,
    chosen: Callable[[list[float]], float] = statistics.median,
) -> dict[str, float]:
    """The median, or what else is `chosen`, of each candidate's answers, over `rounds` rounds after one more."""
    return {name: chosen(figures) for name, figures in all_by_turns(candidates, rounds, progress).items()}


def all_by_turns(
    candidates: Mapping[str, Callable[[], float]], rounds: int, progress: Progress
) -> dict[str, list[float]]:
    """Every answer of each candidate, over `rounds` rounds after one more."""
    found: dict[str, list[float]] = {name: [] for name in candidates}
    for index in range(rounds + 1):
        for name, candidate in candidates.items():
            progress.step(index, rounds, name)
            figure = candidate()
            if index:
                found[name].append(figure)
    return found


def seconds_by_turns(works: Mapping[str, Work], rounds: int, progress: Progress) -> dict[str, float]:
    """The median seconds of each work."""
    return by_turns({name: timed(work) for name, work in works.items()}, rounds, progress)


def timed(work: Work) -> Callable[[], float]:
    """What does the work and answers its seconds."""

    def seconds() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return seconds


def repeated(work: Work, at_least: float) -> Callable[[], float]:
    """What does the work again and again for at least so many seconds, and answers the seconds that once took."""

    def seconds() -> float:
        began, times = time.perf_counter(), 0
        while (taken := time.perf_counter() - began) < at_least or not times:
            work()
            times += 1
        return taken / times

    return seconds
