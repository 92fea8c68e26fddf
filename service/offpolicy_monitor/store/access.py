"""Access tokens for whoever looks after the database, beside a service that runs.

One short transaction each, also on a SQLite file that a service writes: nothing else of what it holds is touched.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from offpolicy_monitor.access import AccessToken
from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.store import migrate
from offpolicy_monitor.store.rows import access
from offpolicy_monitor.store.session import Database, parse_url


def enter(url: str, token: AccessToken) -> bool:
    """Keep a new token; whether it is the first one, from which on a service asks for them."""
    with _opened(url) as database, database.writing() as connection:
        first = not access.any_token(connection)
        access.enter(connection, token)
    return first


def read_all(url: str) -> list[AccessToken]:
    """Every token, the oldest first."""
    with _opened(url) as database, database.reading() as connection:
        return access.read_all(connection)


def revoke(url: str, ids: Sequence[str], now: float) -> list[str]:
    """Take tokens back; answers which of them there are."""
    with _opened(url) as database, database.writing() as connection:
        return access.revoke(connection, ids, now)


@contextmanager
def _opened(url: str) -> Iterator[Database]:
    """The database; ConfigurationError where it has not the schema that this version needs."""
    advice = migrate.outdated(url)
    if advice is not None:
        raise ConfigurationError(advice)
    with closing(Database(parse_url(url))) as database:
        yield database
