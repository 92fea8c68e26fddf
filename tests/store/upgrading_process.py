"""A process that upgrades a database, killed before its Nth statement or before its commit: `URL N` are its arguments.

With N = 0 it is not killed, and says the numbers of the last statement of each migration.
"""

import os
import signal
import sys
from typing import Any


def main(url: str, number: int) -> None:
    from offpolicy_monitor.store import migrate
    from sqlalchemy import Connection, Engine, event

    begun, lasts = 0, []

    def before(_connection: Connection, _cursor: Any, statement: str, *_rest: Any) -> None:
        nonlocal begun
        begun += 1
        if statement.startswith("UPDATE alembic_version"):
            lasts.append(begun)
        if begun == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def committing(_connection: Connection) -> None:
        if number > begun:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", before)
    event.listen(Engine, "commit", committing)
    migrate.upgrade(url)
    if number == 0:
        print(*lasts)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
