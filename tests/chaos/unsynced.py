"""The service with a database session that does not wait for the disk: `python unsynced.py STATEMENT serve ...`.

For the controls of power cuts. The statement is executed on each connection that is taken out of a pool.
"""

import sqlite3
import sys
from typing import Any

from sqlalchemy import Pool, event


def unsync(connection: Any, _record: object, _proxy: object) -> None:
    """Execute it outside of any transaction."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute(sys.argv[1])
        return
    connection.autocommit = True
    connection.execute(sys.argv[1])
    connection.autocommit = False


if __name__ == "__main__":
    from offpolicy_monitor.cli import main

    event.listen(Pool, "checkout", unsync)
    sys.exit(main(sys.argv[2:]))
