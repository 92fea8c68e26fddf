"""The right to write to a SQLite file: one process at a time, held by a lock file beside it.

The operating system drops the lock when its holder dies, however it dies. Knows files, no database.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from offpolicy_monitor.errors import ConfigurationError


@contextmanager
def _usable(database: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{database} cannot be a database: {error.strerror}") from error


def make_folder(database: Path) -> None:
    """Make the folder of a database file; ConfigurationError where that cannot be."""
    with _usable(database):
        database.parent.mkdir(parents=True, exist_ok=True)


class WriterLock:
    """Held from construction to `release`; a second one on the same database raises ConfigurationError.

    So does a path that can hold no file.
    """

    def __init__(self, database: Path) -> None:
        make_folder(database)
        with _usable(database):
            self._file = open(f"{database}.lock", "a+b", buffering=0)  # noqa: SIM115 - held until `release`
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.seek(0)
            holder = self._file.read(32).decode("ascii", "replace") or "unknown"
            self._file.close()
            raise ConfigurationError(
                f"{database} is being written by another process (pid {holder}): SQLite takes one writing process. "
                "Stop that one, or use PostgreSQL for several"
            ) from error
        self._file.truncate(0)
        self._file.write(str(os.getpid()).encode())

    def release(self) -> None:
        """Let the next process write; twice is harmless.

        The file stays: removing it would let two holders lock different files.
        """
        self._file.close()

    def __enter__(self) -> "WriterLock":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()
