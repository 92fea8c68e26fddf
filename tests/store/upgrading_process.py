"""A process that upgrades databases in forks of itself, each killed before its Nth statement or before its commit.

Each line of its input is `URL N`, its answer the exit status of the fork: -9 where it was killed, else 0. With N = 0
none is killed, and the numbers of the last statement of each migration come first.
"""

import os
import signal
import sys
from typing import Any


def main() -> None:
    from offpolicy_monitor.store import migrate

    migrate.head()
    for line in sys.stdin:
        url, number = line.split()
        sys.stdout.flush()
        if (pid := os.fork()) == 0:
            _upgrade(url, int(number))
            sys.stdout.flush()
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _upgrade(url: str, number: int) -> None:
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
    main()
