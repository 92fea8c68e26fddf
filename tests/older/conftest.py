"""Databases as f832f41 left them a moment ago: the SQLite file, and its rows in PostgreSQL."""

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import JSON, Connection, MetaData, create_engine, insert, select, text

from tests.fixtures.revisions import downgrade
from tests.older.kept import F832F41, unpack_database

REVISION: Final = "0003"
#: Columns that hold unix seconds.
TIMES: Final[Mapping[str, Sequence[str]]] = {
    "runs": ("created_at", "last_batch_at", "finished_at"),
    "shards": ("received_at",),
    "steps": ("first_received_at", "last_received_at"),
    "alerts": ("started_at", "active_at", "resolved_at"),
}


@pytest.fixture
def old_sqlite_url(tmp_path: Path) -> str:
    """The SQLite file."""
    file = tmp_path / "old.db"
    unpack_database(F832F41, file)
    with closing(sqlite3.connect(file)) as connection:
        of_a_moment_ago(connection)
    return f"sqlite:///{file}"


@pytest.fixture
def old_postgres_url(old_sqlite_url: str, postgres_database: Callable[[], str]) -> str:
    """The same rows in PostgreSQL."""
    url = postgres_database()
    downgrade(url, REVISION)
    source, target = create_engine(old_sqlite_url), create_engine(url)
    with source.connect() as reading, target.begin() as writing:
        copy(reading, writing)
    source.dispose()
    target.dispose()
    return url


@pytest.fixture(params=["sqlite", "postgres"])
def old_url(request: pytest.FixtureRequest) -> str:
    """Once on each kind of database."""
    url: str = request.getfixturevalue(f"old_{request.param}_url")
    return url


def of_a_moment_ago(connection: sqlite3.Connection) -> None:
    """Move all times, so that no run has been silent since."""
    [[newest]] = connection.execute("SELECT max(last_batch_at) FROM runs")
    for table, columns in TIMES.items():
        changes = ", ".join(f"{column} = {column} + ?" for column in columns)
        connection.execute(f"UPDATE {table} SET {changes}", [time.time() - newest] * len(columns))
    connection.commit()


def copy(source: Connection, target: Connection) -> None:
    """Every row of every table."""
    there, here = MetaData(), MetaData()
    there.reflect(source)
    here.reflect(target)
    here.remove(here.tables["alembic_version"])
    for table in here.sorted_tables:
        for column in table.columns:
            if isinstance(column.type, JSON):
                column.type.none_as_null = True
        if rows := source.execute(select(there.tables[table.name])).mappings().all():
            target.execute(insert(table), [dict(row.items()) for row in rows])  # pyrefly: ignore[no-matching-overload]
        if "id" in table.columns:
            most = f"(SELECT max(id) FROM {table.name})"
            target.execute(text(f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), {most})"))
