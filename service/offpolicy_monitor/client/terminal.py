"""Terminal: one line that is written over again and again, or, where nobody looks on, a line now and then.

It knows streams, seconds and columns, and nothing of what is shown.
"""

import math
import shutil
import time
from collections.abc import Callable
from typing import TextIO

LINE_SECONDS = 5.0
FRAME_SECONDS = 0.1
ERASE_LINE = "\r\x1b[2K"


class Terminal:
    """Writes to `stream`, `updating` where it is a terminal; by `clock` the last line was `shown` at that second."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream, self.clock = stream, clock
        self.updating = stream.isatty()
        self.shown = -math.inf
        self._standing = ""

    def offer(self, line: Callable[[], str]) -> None:
        """Show a line, unless another was shown a moment ago: FRAME_SECONDS on a terminal, LINE_SECONDS elsewhere."""
        now = self.clock()
        if now - self.shown >= (FRAME_SECONDS if self.updating else LINE_SECONDS):
            self._put(line(), now)

    def show(self, line: str) -> None:
        """Show a line, in place of the one before it on a terminal."""
        self._put(line, self.clock())

    def _put(self, line: str, now: float) -> None:
        self.shown = now
        if self.updating:
            self._standing = line[: shutil.get_terminal_size().columns - 1]
            self._write(ERASE_LINE + self._standing)
        else:
            self._write(line + "\n")

    def say(self, text: str) -> None:
        """A line for good, above the one that is written over."""
        self._write(f"{ERASE_LINE if self._standing else ''}{text}\n{self._standing}")

    def end(self) -> None:
        """Leave the line as it stands: what comes next comes below it."""
        if self._standing:
            self._standing = ""
            self._write("\n")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()
