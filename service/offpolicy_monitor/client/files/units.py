"""Units: the files of a folder that are read together, and whether they are whole.

A unit of prime-rl is a step's folder, of slime the files of a rollout, of the others one file. Knows names, sizes and
times; `formats` says which names mean what.
"""

import hashlib
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SETTLE = 2.0  # seconds without a change after which a file without a marker is taken to be whole
BLOCK = 1 << 20
CLOCK_SLACK = 10**9  # nanoseconds by which the clocks of two machines on one file system may differ


@dataclass(frozen=True)
class Unit:
    """Files that are read together: its name for the state file, the step of its name, and the marker that ends it."""

    name: str
    step: int
    paths: tuple[Path, ...]
    order: tuple[Any, ...] = ()
    marker: Path | None = None

    def stat(self) -> list[list[Any]]:
        """Name, bytes and time of last change of each file. Raises FileNotFoundError where one is gone."""
        found = [(path.name, path.stat()) for path in self.paths]
        return [[name, stat.st_size, stat.st_mtime_ns] for name, stat in found]

    def size(self) -> int:
        """Bytes of all files, 0 for one that is gone."""
        return sum(path.stat().st_size for path in self.paths if path.exists())

    def content(self) -> str:
        """A digest of what the files hold, in hexadecimal."""
        digest = hashlib.blake2b(digest_size=16)
        for path in self.paths:
            with path.open("rb") as file:
                while block := file.read(BLOCK):
                    digest.update(block)
        return digest.hexdigest()


@dataclass
class Readiness:
    """Tells which units are whole: by their marker, else by not having changed for `settle` seconds."""

    settle: float = SETTLE
    seen: dict[str, tuple[list[list[Any]], float]] = field(default_factory=dict)

    def why_not(self, unit: Unit) -> str | None:
        """What the unit still waits for; None where it is whole."""
        stat, now = unit.stat(), time.monotonic()
        known, since = self.seen.get(unit.name, (None, now))
        if known != stat:
            # A file that was last changed long ago need not be watched first.
            since = now if known is not None else now - max(time.time() - max(row[2] for row in stat) / 1e9, 0.0)
            self.seen[unit.name] = (stat, since)
        if unit.marker is not None:
            return self._marker(unit.marker, stat)
        return None if now - since >= self.settle else "it is still being written"

    @staticmethod
    def _marker(marker: Path, stat: list[list[Any]]) -> str | None:
        """A marker older than the files is that of an earlier writing, by a trainer that has been restarted since."""
        try:
            marked = marker.stat().st_mtime_ns
        except FileNotFoundError:
            return f"its {marker.name} marker is not there yet"
        newest = max(row[2] for row in stat)
        return None if marked >= newest - CLOCK_SLACK else f"its {marker.name} marker is older than its files"

    def forget(self, names: Collection[str]) -> None:
        """Drop what was seen of units other than `names`."""
        for name in self.seen.keys() - set(names):
            del self.seen[name]
