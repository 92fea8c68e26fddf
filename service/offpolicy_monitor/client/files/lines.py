"""Lines: the whole lines of a file from a byte offset on.

A last line without its end is given with `torn` set: it may be half of what its writer means to write. Knows bytes and
nothing of what they say.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offpolicy_monitor.client.files.record import Unreadable


@dataclass(frozen=True)
class Line:
    """One line: its number from 1, the offset behind it, its bytes, and whether its end is missing."""

    number: int
    end: int
    content: bytes
    torn: bool

    def object(self, nan: bool) -> dict[str, Any]:
        """The JSON object that it holds; `nan` takes Python's NaN and Infinity too. Raises Unreadable."""
        try:
            value = json.loads(self.content, parse_constant=float if nan else _no_constant)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"is not valid JSON: {error}") from error
        if not isinstance(value, dict):
            raise Unreadable("is not a JSON object")
        return value


def lines(path: Path, start: int = 0, number: int = 0) -> Iterator[Line]:
    """The lines behind byte `start`, which is the end of line `number`; blank ones are left out."""
    with path.open("rb") as file:
        file.seek(start)
        for content in file:
            start, number = start + len(content), number + 1
            if content.strip():
                yield Line(number, start, content, not content.endswith(b"\n"))


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON: write null")
