"""Watch: what a process holds over time, and whether that is flat.

Memory, descriptors and threads are read from /proc. How much each has grown is the slope of a straight line through
what was seen, over the time that it was seen: a service that is killed and started again has several lives, whose lines
have one slope. The first seconds of each life, in which caches fill, are left out.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

MEBIBYTE: Final = 1 << 20
#: Growth over all that was watched up to which each is flat; threads that measure and read begin when they are needed.
BOUNDS: Final = {"memory": 24 * MEBIBYTE, "descriptors": 12.0, "threads": 5.0}
#: Looks at a settled life below which it says nothing.
LEAST_SEEN: Final = 10


@dataclass(frozen=True)
class Seen:
    """What a process held `at` seconds after it was first seen."""

    at: float
    memory: float
    descriptors: float
    threads: float


def seen(pid: int, at: float) -> Seen:
    """What a process holds now; OSError where it is gone."""
    proc = Path("/proc") / str(pid)
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    if "VmRSS" not in status:
        raise ProcessLookupError(pid)
    descriptors = sum(1 for _ in (proc / "fd").iterdir())
    return Seen(at, int(status["VmRSS"].split()[0]) * 1024, descriptors, int(status["Threads"]))


@dataclass
class Watch:
    """Looks at a process every `every` seconds; `lives` has what was seen of each, by its process id."""

    every: float = 0.5
    settling: float = 10.0
    lives: dict[int, list[Seen]] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    births: dict[int, float] = field(default_factory=dict)
    _pid: int | None = None
    _ended: threading.Event = field(default_factory=threading.Event)

    def follow(self, pid: int) -> None:
        """Look at this process from now on."""
        self.births[pid] = time.monotonic()
        self._pid = pid

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, it is looked at."""
        thread = threading.Thread(target=self._look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(10)

    def grown(self) -> dict[str, float]:
        """How much each has grown, by the slope over all settled lives."""
        lives = [life for life in map(self._settled, self.lives.values()) if len(life) >= LEAST_SEEN]
        return {name: growth([[(one.at, getattr(one, name)) for one in life] for life in lives]) for name in BOUNDS}

    def not_flat(self, *names: str) -> list[str]:
        """What of these, or of all, has grown by more than its bound, a sentence each."""
        grown = self.grown()
        return [f"{name} grew by {grown[name]:,.0f}" for name in names or BOUNDS if grown[name] > BOUNDS[name]]

    def line(self) -> list[tuple[float, float]]:
        """(seconds since the watch began, bytes of memory), of all lives one after the other."""
        return [
            (self.births[pid] - self.began + one.at, one.memory) for pid, life in self.lives.items() for one in life
        ]

    def peaks(self, number: int) -> list[tuple[float, float]]:
        """The same in at most so many points, each the highest of those around it."""
        line = self.line()
        size = max(1, -(-len(line) // number))
        return [max(line[start : start + size], key=lambda one: one[1]) for start in range(0, len(line), size)]

    def _settled(self, life: Sequence[Seen]) -> list[Seen]:
        return [one for one in life if one.at >= self.settling]

    def _look(self) -> None:
        while not self._ended.wait(self.every):
            pid = self._pid
            if pid is not None:
                with suppress(OSError):
                    self.lives.setdefault(pid, []).append(seen(pid, time.monotonic() - self.births[pid]))


def growth(lives: Sequence[Sequence[tuple[float, float]]]) -> float:
    """The common slope of lines through (time, value) of each life, times the time that was seen; 0 of nothing."""
    above = below = spans = 0.0
    for life in lives:
        middle = sum(at for at, _ in life) / len(life)
        usual = sum(value for _, value in life) / len(life)
        above += sum((at - middle) * (value - usual) for at, value in life)
        below += sum((at - middle) ** 2 for at, _ in life)
        spans += life[-1][0] - life[0][0]
    return above / below * spans if below else 0.0
