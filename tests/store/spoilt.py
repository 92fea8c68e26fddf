"""What may have become of a database's file: pages of zeros, its first half alone, a schema of a newer program."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path


def flipped(file: Path) -> None:
    pages = bytearray(file.read_bytes())
    pages[20 * 4096 : 30 * 4096] = bytes(10 * 4096)
    file.write_bytes(pages)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def newer(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
