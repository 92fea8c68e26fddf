"""Progress: how far a delivery is, as a line on a terminal.

It knows bytes and seconds, and nothing of files or posts.
"""

import time
from collections.abc import Callable
from typing import TextIO

from offpolicy_monitor.client.files.record import Record
from offpolicy_monitor.client.terminal import Terminal

BAR = 24
UNITS = ("B", "kB", "MB", "GB", "TB")


class Progress:
    """Shows a share of `total` bytes, or without a total what was read so far; `clock` gives seconds."""

    def __init__(self, stream: TextIO, total: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.clock, self.terminal = total, clock, Terminal(stream, clock)
        self.ends: dict[str, int] = {}
        self.begun = clock()
        self.resumed = 0
        self.step: int | None = None
        if not self.terminal.updating:
            self.terminal.shown = self.begun

    def reached(self, unit: str, end: int, record: Record | None) -> None:
        """`end` bytes of a unit are through; those before the first record of this run were so already."""
        self.ends[unit] = end
        if record is not None:
            self.step = record.order[0]
        elif self.step is None:
            self.resumed = sum(self.ends.values())
        if record is not None:
            self.terminal.offer(self.line)

    def note(self, text: str) -> None:
        """A line of its own, above the updating one."""
        self.terminal.say(text)

    def close(self, text: str) -> None:
        """The last line, for good."""
        if self.terminal.updating and self.step is not None:
            self.terminal.show(self.line())
        self.terminal.end()
        self.terminal.say(text)

    def line(self) -> str:
        """Share, bytes, rate, time left and step in one line."""
        done = sum(self.ends.values())
        seconds = max(self.clock() - self.begun, 1e-9)
        rate = (done - self.resumed) / seconds
        step = "" if self.step is None else f"  step {self.step}"
        if self.total is None:
            return f"{size(done)} read{step}"
        share = min(done / self.total, 1.0) if self.total else 1.0
        left = "-" if rate <= 0 else span((self.total - done) / rate)
        bar = f"[{'#' * int(share * BAR):<{BAR}}] " if self.terminal.updating else ""
        return f"{bar}{share:4.0%}  {size(done)} of {size(self.total)}  {size(rate)}/s  ETA {left}{step}"


def size(count: float) -> str:
    """Bytes for people: 999 B, 12.3 MB."""
    for unit in UNITS:
        if count < 1000 or unit == UNITS[-1]:
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def span(seconds: float) -> str:
    """Seconds for people: 0:07, 12:34, 1:02:03."""
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
