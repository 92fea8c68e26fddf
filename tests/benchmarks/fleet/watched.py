"""What a service and its PostgreSQL use while they work: processor, memory, transactions, bytes of log.

Of a service all processes of its session count, of a server the first process and its children.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import NullPool, create_engine, text

from tests.benchmarks.servers import session_seconds

EVERY = 1.0
MEBIBYTE = 1 << 20
COUNTS = """
    SELECT xact_commit, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::int8, pg_database_size(current_database())
    FROM pg_stat_database WHERE datname = current_database()
"""


@dataclass(frozen=True)
class Used:
    """Seconds of a processor, commits, bytes of write-ahead log and of the database, since the beginning."""

    service: float
    server: float
    commits: int
    log: int
    size: int

    def __sub__(self, before: "Used") -> "Used":
        mine, other = vars(self), vars(before)
        return Used(**{name: mine[name] - other[name] for name in mine})


def used(session: int, server: int, url: str) -> Used:
    """So far."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_stat_clear_snapshot()"))
        commits, log, size = connection.execute(text(COUNTS)).one()
    return Used(session_seconds(session), server_seconds(server), commits, log, size)


def server_seconds(server: int) -> float:
    """Of a server, its children, and those of them that have ended."""
    own = _stat(server)
    ticks = sum(map(int, own[11:15])) + sum(sum(map(int, _stat(child)[11:13])) for child in _children(server))
    return ticks / os.sysconf("SC_CLK_TCK")


def session_memory(session: int) -> float:
    """MiB of the processes of a session; what they share counts once."""
    return _memory(int(path.name) for path in Path("/proc").glob("[0-9]*") if _is_of(path, session))


@contextmanager
def most(figure: Callable[[], float]) -> Iterator[list[float]]:
    """Inside, a figure is looked at every second; the list is what was seen."""
    seen, over = [figure()], threading.Event()

    def watch() -> None:
        while not over.wait(EVERY):
            seen.append(figure())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join(30)


def _memory(processes: Iterable[int]) -> float:
    kib = 0
    for process in processes:
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue  # ended between the two looks
        kib += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kib * 1024 / MEBIBYTE


def _is_of(path: Path, session: int) -> bool:
    fields = _stat(int(path.name))
    return len(fields) > 3 and int(fields[3]) == session


def _stat(process: int) -> list[str]:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["0"] * 20


def _children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
