"""Access tokens as rows: entered, listed, revoked, and when each was used last. None ever goes: see `any_token`.

Every function takes the caller's connection.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, insert, or_, select, update

from offpolicy_monitor.access import ANY_RUN, AccessToken, expression
from offpolicy_monitor.store.rows.tables import access_tokens as rows
from offpolicy_monitor.store.rows.tables import runs


def enter(connection: Connection, token: AccessToken) -> None:
    """Keep a new token."""
    connection.execute(insert(rows), {**vars(token), "scopes": " ".join(sorted(token.scopes))})


def read_all(connection: Connection) -> list[AccessToken]:
    """Every token, also those that are revoked or expired, the oldest first."""
    return [_token(row) for row in connection.execute(select(rows).order_by(rows.c.created_at, rows.c.id))]


def any_token(connection: Connection) -> bool:
    """Whether there ever was a token: a service that was closed once is not opened by revoking the last one."""
    return connection.execute(select(rows.c.id).limit(1)).first() is not None


def revoke(connection: Connection, ids: Sequence[str], now: float) -> list[str]:
    """Take tokens back; answers which of them there are. The first time counts."""
    found = connection.scalars(select(rows.c.id).where(rows.c.id.in_(ids)).order_by(rows.c.id)).all()
    standing = rows.c.id.in_(ids) & rows.c.revoked_at.is_(None)
    connection.execute(update(rows).where(standing).values(revoked_at=now))
    return list(found)


def note_use(connection: Connection, used: Mapping[str, float]) -> None:
    """Remember when tokens were used last, which other processes may have seen later."""
    for name, when in used.items():
        earlier = or_(rows.c.last_used_at.is_(None), rows.c.last_used_at < when)
        connection.execute(update(rows).where(rows.c.id == name, earlier).values(last_used_at=when))


def seen_by(pattern: str | None) -> list[ColumnElement[bool]]:
    """The condition on `runs` that a token's pattern makes; none for one that sees all, or for None."""
    return [] if pattern in (None, ANY_RUN) else [runs.c.name.regexp_match(expression(str(pattern)))]


def _token(row: Row[Any]) -> AccessToken:
    values: dict[str, Any] = {column.key: value for column, value in zip(rows.c, row, strict=True)}
    values |= {"scopes": frozenset(values["scopes"].split()), "digest": bytes(values["digest"])}
    return AccessToken(**values)
