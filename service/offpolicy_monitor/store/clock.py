"""How far the clock of whoever keeps the database is from this machine's: the server's, or that of a file's disk."""

import tempfile
import time
from contextlib import closing
from pathlib import Path

from sqlalchemy import func, select

from offpolicy_monitor.store.failures import translated
from offpolicy_monitor.store.session import Database, parse_url, sqlite_file


def ahead(url: str) -> float:
    """Seconds by which it is ahead; below 0 it is behind."""
    path = sqlite_file(parse_url(url))
    if path is not None:
        return _of_disk(path.parent)
    with closing(Database(parse_url(url))) as database, database.reading() as connection:
        before = time.time()
        there = float(connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())
        return there - (before + time.time()) / 2


def _of_disk(folder: Path) -> float:
    with translated(folder), tempfile.NamedTemporaryFile(dir=folder) as trial:
        trial.write(b"x")
        trial.flush()
        return Path(trial.name).stat().st_mtime - time.time()
