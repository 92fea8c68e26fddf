"""State: what the service has acknowledged of a folder's dumps, in a small JSON file, so that a follower can resume.

Written atomically and only after the acknowledgement, at most twice per second: what a killed process had not written
yet is posted again, and counted once thanks to the shard key. A service at another address starts it over for that
reason.
"""

import hashlib
import json
import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from offpolicy_monitor.errors import ConfigurationError

VERSION = 1
EVERY = 0.5  # seconds between two writings
# Bytes that identify a growing file: of its first line, and before the position reached.
HEAD, ANCHOR = 1 << 16, 1 << 12


class State:
    """Entries by a unit's name; `attempt` is the newest one in use. `path` None keeps it in memory alone."""

    def __init__(self, path: Path | None, url: str, run: str) -> None:
        self.path, self.url, self.run = path, url, run
        self.attempt = 0
        self.units: dict[str, dict[str, Any]] = {}
        self._changed, self._saved = False, -EVERY
        if path is not None and not os.access(path.parent, os.W_OK):
            raise ConfigurationError(f"cannot write in {path.parent}: name another file with --state")
        if path is not None and path.exists():
            self._load(path)

    def _load(self, path: Path) -> None:
        try:
            stored = json.loads(path.read_bytes())
            if stored["version"] != VERSION:
                raise ValueError(f"version {stored['version']} is not known")
            if (stored["url"], stored["run"]) == (self.url, self.run):
                self.attempt, self.units = int(stored["attempt"]), dict(stored["units"])
        except (ValueError, KeyError, TypeError) as error:
            message = f"{path} is no state file of this program ({error}): remove it, or name another with --state"
            raise ConfigurationError(message) from error

    def put(self, name: str, entry: dict[str, Any]) -> None:
        """Remember a unit, and write the file unless that was a moment ago."""
        self.units[name] = entry
        self._changed = True
        if time.monotonic() - self._saved >= EVERY:
            self.save()

    def keep(self, names: Collection[str]) -> None:
        """Forget units whose files are gone."""
        gone = self.units.keys() - set(names)
        self._changed |= bool(gone)
        for name in gone:
            del self.units[name]

    def save(self) -> None:
        """Write what changed: a new file, made durable, in the place of the old one."""
        if self.path is None or not self._changed:
            return
        document = {
            "version": VERSION, "url": self.url, "run": self.run, "attempt": self.attempt, "units": self.units,
        }  # fmt: skip
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        try:
            with beside.open("w") as file:
                json.dump(document, file)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
        except OSError as error:
            raise ConfigurationError(f"cannot write {self.path} ({error}): name another file with --state") from error
        self._changed, self._saved = False, time.monotonic()


def head(path: Path) -> str | None:
    """What a growing file is known by whatever its name becomes, its first line's digest; None where it has no line."""
    with path.open("rb") as file:
        line = file.readline(HEAD)
    whole = line.endswith(b"\n") or len(line) == HEAD
    return _digest(line) if whole else None


def anchor(path: Path, offset: int) -> str | None:
    """The digest of the bytes just before `offset`, None where the file is shorter: was it this file that was read?"""
    start = max(offset - ANCHOR, 0)
    with path.open("rb") as file:
        file.seek(start)
        content = file.read(offset - start)
    return _digest(content) if len(content) == offset - start else None


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
