"""Gives room that rows have left back to the file system: pages of a SQLite file in portions, or everything at once.

PostgreSQL cleans up after itself (autovacuum) and fills what is free; `vacuum` does so now, or writes tables anew.
"""

import math
import shutil
import time
from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection, text

from offpolicy_monitor.store.session import Database, parse_url, sqlite_file, unshared

#: Most pages given back in one transaction, and seconds after which it ends with fewer: the more pages are free, the
#: longer SQLite looks for the one that it wants.
PORTION: Final = 512
SECONDS: Final = 0.02
#: Free pages that are left for what comes next: they save the growing of the file.
SPARE: Final = 4096


def give_back_portion(connection: Connection) -> int:
    """Give some pages back; 0 where few are free, where the file cannot shrink by pieces, and on PostgreSQL."""
    if connection.dialect.name != "sqlite" or not connection.execute(text("PRAGMA auto_vacuum")).scalar():
        return 0
    if int(connection.execute(text("PRAGMA freelist_count")).scalar_one()) < SPARE + PORTION:
        return 0
    # For several pages it answers several rows, of which the driver asks for the first alone, as they have no columns.
    driver = connection.connection.driver_connection
    assert driver is not None
    began = time.monotonic()
    for _ in range(PORTION):
        driver.execute("PRAGMA incremental_vacuum(1)")
        if time.monotonic() - began >= SECONDS:
            break
    return 1


def room(url: str) -> Callable[[], float] | None:
    """Asks how many bytes are left on the disk of a SQLite file, NaN where nobody knows; None of PostgreSQL."""
    path = sqlite_file(parse_url(url))
    if path is None:
        return None

    def free() -> float:
        try:
            return float(shutil.disk_usage(path.parent).free)
        except OSError:
            return math.nan

    return free


def vacuum(url: str, full: bool = False) -> int:
    """Give back all that is free; answers the size of the database after that, bytes.

    `full` matters on PostgreSQL alone: without it tables stay as large as they are, and what is free in them is filled;
    with it they are written anew, which locks each meanwhile. Raises ConfigurationError where another process writes
    the SQLite file. Writing anew needs as much room again.
    """
    with unshared(url) as database:
        return _vacuum_postgres(database, full) if database.file is None else _vacuum_sqlite(database)


def _vacuum_sqlite(database: Database) -> int:
    with database.plain() as connection:
        connection.execute(text("PRAGMA auto_vacuum = INCREMENTAL"))
        connection.execute(text("VACUUM"))
        connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)")).all()
        pages, size = (connection.execute(text(f"PRAGMA page_{what}")).scalar_one() for what in ("count", "size"))
        return int(pages) * int(size)


def _vacuum_postgres(database: Database, full: bool) -> int:
    with database.plain() as connection:
        connection.execute(text("SET statement_timeout = 0"))
        connection.execute(text("VACUUM (FULL, ANALYZE)" if full else "VACUUM (ANALYZE)"))
        return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
