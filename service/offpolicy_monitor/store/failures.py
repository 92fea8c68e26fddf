"""Failures of the database, translated into what the caller can do about them.

The one place in the store that says what driver errors mean. A defect of ours (a wrong statement, a broken constraint)
is not translated: it stays an alarm. A database that is a file is named: whoever reads the message may have several.
"""

import errno
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, exc
from sqlalchemy.engine.interfaces import DBAPICursor

from offpolicy_monitor.errors import Unavailable

DEFECTS = (exc.ProgrammingError, exc.IntegrityError, exc.DataError, exc.NotSupportedError)
SQLITE_BUSY, SQLITE_IO_ERROR, SQLITE_CORRUPT, SQLITE_FULL, SQLITE_NO_DATABASE = 5, 10, 11, 13, 26
POSTGRES_DISK_FULL, POSTGRES_LOCKED = "53100", "55P03"
#: No room on the disk, none in the quota.
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
#: What a group of a few shards takes.
TRIAL_BYTES = 1 << 18


#: What to do about a damaged database.
RESTORE: Final = "stop the service, move the file away and restore a backup ('offpolicy-monitor db restore')"


class Damaged(Unavailable):
    """A file that is not, or no longer, a database: it does not mend by itself."""

    def __init__(self, file: Path | None, reason: str, advice: str = RESTORE) -> None:
        super().__init__(503, "store-unavailable", f"{_named(file)} is damaged: {reason}; {advice}")


@contextmanager
def translated(file: Path | None = None) -> Iterator[None]:
    """Turn a failing database into Unavailable: 507 where its disk is full, else 503. `file` is that of SQLite."""
    try:
        yield
    except DEFECTS:
        raise
    except exc.DBAPIError as error:
        raise _of_driver(error.orig, file) from error
    except sqlite3.Error as error:
        raise _of_driver(error, file) from error
    except exc.TimeoutError as error:
        raise _unavailable("every database connection is busy") from error
    except OSError as error:
        if error.errno in NO_ROOM:
            raise _full(file) from error
        raise _unavailable(f"{_named(file)} cannot be reached: {error.strerror}") from error


def driven(
    connection: Connection,
    text: str,
    of_rows: Sequence[Any] = ((),),
    read: Callable[[DBAPICursor], Any] = lambda cursor: None,
) -> Any:
    """Let the driver run a statement once for each of these parameters; answers what `read` finds with its cursor.

    Errors of the driver are raised as SQLAlchemy raises them.
    """
    cursor = connection.connection.cursor()
    try:
        if len(of_rows) == 1:
            cursor.execute(text, of_rows[0])
        else:
            cursor.executemany(text, of_rows)
        return read(cursor)
    except connection.dialect.loaded_dbapi.Error as error:
        driver = connection.dialect.loaded_dbapi.Error
        gone = connection.dialect.is_disconnect(error, connection.connection, cursor)
        if gone:
            connection.invalidate(error)
        raise exc.DBAPIError.instance(text, None, error, driver, connection_invalidated=gone) from error
    finally:
        cursor.close()


def _of_driver(error: BaseException | None, file: Path | None) -> Unavailable:
    if _disk_is_full(error, file):
        return _full(file)
    if _code(error) in (SQLITE_CORRUPT, SQLITE_NO_DATABASE):
        return Damaged(file, _reason(error))
    if _code(error) == SQLITE_BUSY or getattr(error, "sqlstate", None) == POSTGRES_LOCKED:
        return _unavailable(
            f"{_named(file)} is locked by another program or session, so nothing was changed: {_reason(error)}"
        )
    return _unavailable(f"{_named(file)} failed: {_reason(error)}")


def _unavailable(detail: str) -> Unavailable:
    return Unavailable(503, "store-unavailable", detail)


def _full(file: Path | None) -> Unavailable:
    return Unavailable(507, "storage-full", f"the disk of {_named(file)} is full, or its quota", retry_after=30)


def _named(file: Path | None) -> str:
    return "the database" if file is None else f"the database {file}"


def _disk_is_full(error: BaseException | None, file: Path | None) -> bool:
    code = _code(error)
    if code == SQLITE_IO_ERROR and file is not None:
        # What the operating system said is lost in SQLite, which knows a full disk, but no quota.
        return _has_no_room(file.parent)
    if code == SQLITE_FULL or getattr(error, "sqlstate", None) == POSTGRES_DISK_FULL:
        return True
    # PostgreSQL has no code for a quota either, but quotes the operating system.
    return os.strerror(errno.EDQUOT) in str(error)


def _code(error: BaseException | None) -> int | None:
    """SQLite's kind of error; None where it is not SQLite's."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def try_room(folder: Path) -> None:
    """Write as much as a group of shards does into a folder, and let it go again; OSError where that cannot be done."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as trial:
        os.pwrite(trial.fileno(), bytes(TRIAL_BYTES), 0)
        os.fsync(trial.fileno())


def _has_no_room(folder: Path) -> bool:
    try:
        try_room(folder)
    except OSError as error:
        return error.errno in NO_ROOM
    return False


def _reason(error: BaseException | None) -> str:
    """The driver's first line: the rest may quote values and addresses."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
