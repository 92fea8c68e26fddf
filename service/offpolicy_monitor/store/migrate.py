"""The schema's life: upgrade a database to the newest revision, and say whether one is there.

One chain of migrations serves SQLite and PostgreSQL; a whole upgrade is one transaction, so that a killed one leaves
the database as it was. Configured in code: there is no alembic.ini. Knows no table.
"""

import sqlite3
from contextlib import closing
from functools import cache
from threading import Timer

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from offpolicy_monitor import resources
from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.store.failures import Damaged
from offpolicy_monitor.store.rows.tables import metadata
from offpolicy_monitor.store.session import LOCK_SECONDS, Database, parse_url, sqlite_file, unshared
from offpolicy_monitor.store.sqlite import SqliteFile

# Any constant will do, so long as every process of this package asks PostgreSQL for the same one.
MIGRATION_LOCK = 0x6F66_6670
UPGRADE = "offpolicy-monitor db upgrade"
#: Lines of damage that are told: one bad page makes thousands.
MOST_DAMAGE = 10
#: How long a file is looked through before it is used.
LOOK_SECONDS = 1.0
COMPARED = {"compare_type": True, "compare_server_default": True}


@cache
def head() -> str:
    """The newest revision this package knows: each migration is read once, not each time that readiness is asked."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    assert revision is not None
    return revision


def upgrade(url: str, lock_seconds: float = LOCK_SECONDS) -> str:
    """Bring the database to the newest revision, making it if need be; answers the revision.

    Raises ConfigurationError where a SQLite file is in use or the database is newer than this package, Damaged where
    it is seen to be, and Unavailable where others hold a lock on it for longer than `lock_seconds`.
    """
    with unshared(url, lock_seconds) as database, database.writing() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        _refuse_damaged(connection, database.file)
        _refuse_unknown(connection)
        command.upgrade(_config(connection), "head")
    return head()


def current(url: str) -> str | None:
    """The revision the database is at; None where it has none yet."""
    parsed = parse_url(url)
    path = sqlite_file(parsed)
    if path is not None and not path.exists():
        return None
    with closing(Database(parsed)) as database, database.reading() as connection:
        return revision_of(connection)


def check(url: str) -> list[str]:
    """What keeps the database from being right, nothing when it is: damage, another revision, other tables.

    Of a SQLite file every page and every index is read.
    """
    try:
        if damage := _damage(url):
            return damage
        if advice := outdated(url):
            return [advice]
        with closing(Database(parse_url(url), bounded=False)) as database, database.reading() as connection:
            context = MigrationContext.configure(connection, opts=COMPARED)
            differences = compare_metadata(context, metadata)
    except Damaged as error:
        return [error.detail]
    return [f"the database differs from the tables: {difference}" for difference in differences]


def refuse_damaged(url: str) -> None:
    """Damaged where a SQLite file is seen to be, at a look that takes a second at most."""
    path = sqlite_file(parse_url(url))
    if path is not None and path.exists():
        with closing(Database(parse_url(url))) as database, database.reading() as connection:
            _refuse_damaged(connection, database.file)


def outdated(url: str, or_else: str = "") -> str | None:
    """Why this version cannot use the database's schema, and what to do (or else); None where it can."""
    revision, newest = current(url), head()
    if revision == newest:
        return None
    if revision is None:
        return f"the database has no schema yet: run '{UPGRADE}'{or_else}"
    if not is_known(revision):
        return from_newer(revision)
    return f"the database is at revision {revision}, not {newest}: run '{UPGRADE}'{or_else}"


def revision_of(connection: Connection) -> str | None:
    """The revision recorded in the database; None where none is."""
    return MigrationContext.configure(connection).get_current_revision()


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(resources.path("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _refuse_damaged(connection: Connection, file: SqliteFile | None) -> None:
    """Read the pages of a SQLite file, as many as a second allows: a start must not take longer for a large one."""
    if file is None:
        return
    driver = connection.connection.driver_connection
    assert driver is not None
    # By another thread: while it walks over a table SQLite calls no progress handler, for minutes where that is large.
    enough = Timer(LOOK_SECONDS, driver.interrupt)
    enough.start()
    try:
        found = connection.execute(text("PRAGMA quick_check(1)")).scalars().all()
    except OperationalError as error:
        if getattr(error.orig, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
            raise
        return
    finally:
        enough.cancel()
        enough.join()
    if found != ["ok"]:
        raise Damaged(file.file, "; ".join(found))


def _refuse_unknown(connection: Connection) -> None:
    revision = revision_of(connection)
    if revision is not None and not is_known(revision):
        raise ConfigurationError(from_newer(revision))


def is_known(revision: str) -> bool:
    """Whether this version has the migration to a revision."""
    return revision in {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}


def from_newer(revision: str) -> str:
    """What to do about a database at a revision that is not known."""
    return (
        f"the database is at revision {revision}, which this version does not know: "
        "it was made by a newer one, so install that"
    )


def _damage(url: str) -> list[str]:
    """What SQLite finds wrong in its file, at most a few lines; PostgreSQL looks after its own."""
    path = sqlite_file(parse_url(url))
    if path is None or not path.exists():
        return []
    with closing(Database(parse_url(url))) as database, database.reading() as connection:
        found = connection.execute(text(f"PRAGMA integrity_check({MOST_DAMAGE})")).scalars().all()
    return [] if found == ["ok"] else [f"{path} is damaged: {line}" for line in found]
