"""Progress: how far a delivery is, one updating line on a terminal, a line now and then elsewhere.

It knows bytes, seconds and terminals, and nothing of files or posts.
"""

import shutil
import time
from collections.abc import Callable
from typing import TextIO

from offpolicy_monitor.client.files.record import Record

LINE_SECONDS = 5.0
FRAME_SECONDS = 0.1
BAR = 24
ERASE_LINE = "\r\x1b[2K"
UNITS = ("B", "kB", "MB", "GB", "TB")


class Progress:
    """Shows a share of `total` bytes, or without a total what was read so far; `clock` gives seconds."""

    def __init__(self, stream: TextIO, total: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream, self.total, self.clock = stream, total, clock
        self.updating = stream.isatty()
        self.ends: dict[str, int] = {}
        self.begun = clock()
        self.resumed = 0
        self.step: int | None = None
        self.shown = self.begun if not self.updating else self.begun - FRAME_SECONDS
        self.last = ""

    def reached(self, unit: str, end: int, record: Record | None) -> None:
        """`end` bytes of a unit are through; those before the first record of this run were so already."""
        self.ends[unit] = end
        if record is not None:
            self.step = record.order[0]
        elif self.step is None:
            self.resumed = sum(self.ends.values())
        if record is not None and self.clock() - self.shown >= (FRAME_SECONDS if self.updating else LINE_SECONDS):
            self._show()

    def note(self, text: str) -> None:
        """A line of its own, above the updating one."""
        self._write(f"{ERASE_LINE if self.last else ''}{text}\n")
        if self.last:
            self._show()

    def close(self, text: str) -> None:
        """The last line, for good."""
        if self.updating and self.step is not None:
            self._show()
            self._write("\n")
        self._write(text + "\n")

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
        bar = f"[{'#' * int(share * BAR):<{BAR}}] " if self.updating else ""
        return f"{bar}{share:4.0%}  {size(done)} of {size(self.total)}  {size(rate)}/s  ETA {left}{step}"

    def _show(self) -> None:
        self.shown, self.last = self.clock(), self.line()
        if self.updating:
            self._write(ERASE_LINE + self.last[: shutil.get_terminal_size().columns - 1])
        else:
            self._write(self.last + "\n")
            self.last = ""

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


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
