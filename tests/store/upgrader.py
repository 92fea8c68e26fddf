"""A program that upgrades a database, killed before its Nth statement or before its commit.

With N = 0 it is not killed, and says the numbers of the last statement of each migration.
"""

import os
import signal
from typing import Any

from offpolicy_monitor.store import migrate
from sqlalchemy import Connection, Engine, event


def main(url: str, number: int) -> None:
    """Upgrade the database at `url`, killed before statement `number`, counted from 1."""
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
