"""Failures of the database, translated into what the caller can do about them.

The one place in the store that catches driver errors. A defect of ours (a wrong statement, a broken constraint) is not
translated: it stays an alarm.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from offpolicy_monitor.errors import Unavailable

DEFECTS = (exc.ProgrammingError, exc.IntegrityError, exc.DataError, exc.NotSupportedError)
SQLITE_FULL = 13
POSTGRES_DISK_FULL = "53100"


@contextmanager
def translated() -> Iterator[None]:
    """Turn a failing database into Unavailable: 507 where its disk is full, else 503."""
    try:
        yield
    except DEFECTS:
        raise
    except exc.DBAPIError as error:
        if _disk_is_full(error.orig):
            raise Unavailable(507, "storage-full", "the database's disk is full", retry_after=30) from error
        raise Unavailable(503, "store-unavailable", f"the database failed: {_reason(error.orig)}") from error
    except exc.TimeoutError as error:
        raise Unavailable(503, "store-unavailable", "every database connection is busy") from error
    except OSError as error:
        status = 507 if error.errno == errno.ENOSPC else 503
        raise Unavailable(status, "store-unavailable", f"the database cannot be reached: {error.strerror}") from error


def _disk_is_full(error: BaseException | None) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return (code is not None and code & 0xFF == SQLITE_FULL) or getattr(error, "sqlstate", None) == POSTGRES_DISK_FULL


def _reason(error: BaseException | None) -> str:
    """The driver's first line: the rest may quote values and addresses."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
