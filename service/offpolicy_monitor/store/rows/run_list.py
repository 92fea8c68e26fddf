"""Which runs a list shows, in which order, page by page: newest first or worst first, all or those that match.

Every function takes the caller's connection.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from sqlalchemy import Connection, select

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.store.rows.access import seen_by
from offpolicy_monitor.store.rows.cursors import cut, decode_cursor, encode_cursor
from offpolicy_monitor.store.rows.patterns import compiled
from offpolicy_monitor.store.rows.runs import state_of
from offpolicy_monitor.store.rows.tables import ACTIVE, PENDING, alerts, judgements, runs

Order = Literal["newest", "worst"]
#: Characters of a pattern, and seconds that matching may take in all.
LONGEST_PATTERN: Final = 200
MATCH_SECONDS: Final = 0.25
#: What comes first where the worst does, from the worst on: by how bad it is, and how soon somebody should look.
CRITICAL, SILENT, WARNING, PENDING_OR_INFO, HEALTHY, FINISHED = range(6)
_COLUMNS: Final = (runs.c.id, runs.c.name, runs.c.labels, runs.c.created_at, runs.c.last_batch_at, runs.c.finished_at)


def page_of_ids(
    connection: Connection,
    limit: int,
    cursor: str | None,
    order: Order,
    pattern: str | None,
    now: float,
    seen: str | None = None,
) -> tuple[Sequence[int], str | None]:
    """The ids of runs, `limit` at most, and the next cursor; Refusal 422 for a pattern that is none or takes long.

    `seen`: of the runs that an access token's pattern names.
    """
    after = None if cursor is None else tuple(decode_cursor(cursor, 2 if order == "worst" else 1))
    if order == "newest" and pattern is None:
        return _newest(connection, limit, None if after is None else after[0], seen)
    query = select(*_COLUMNS, judgements.c.step_seconds).select_from(runs.outerjoin(judgements))
    rows = connection.execute(query.where(runs.c.deleted.is_(None), *seen_by(seen)).order_by(runs.c.id.desc())).all()
    found = rows if pattern is None else list(_matching(rows, pattern))
    if order == "newest":
        keys: list[tuple[int, ...]] = [(row.id,) for row in found if after is None or row.id < after[0]]
    else:
        ranks = _ranks(connection, found, now)
        ranked = sorted((ranks[row.id], -row.id) for row in found)
        keys = [(rank, -id_) for rank, id_ in ranked if after is None or (rank, id_) > (after[0], -after[1])]
    page, more = cut(keys[: limit + 1], limit)
    return [key[-1] for key in page], encode_cursor(*page[-1]) if more else None


def ids_of(connection: Connection, names: Collection[str]) -> Sequence[int]:
    """The ids of those of these runs that there are."""
    query = select(runs.c.id).where(runs.c.name.in_(list(names)), runs.c.deleted.is_(None))
    return connection.scalars(query).all()


def _newest(
    connection: Connection, limit: int, before: int | None, seen: str | None
) -> tuple[Sequence[int], str | None]:
    query = (
        select(runs.c.id).where(runs.c.deleted.is_(None), *seen_by(seen)).order_by(runs.c.id.desc()).limit(limit + 1)
    )
    ids = connection.scalars(query if before is None else query.where(runs.c.id < before)).all()
    page, more = cut(ids, limit)
    return page, encode_cursor(page[-1]) if more else None


def _matching(rows: Sequence[Any], pattern: str) -> Iterator[Any]:
    """Runs whose name, or one of whose labels as `name=value`, the regular expression is found in."""
    wanted = compiled(pattern)
    deadline = time.monotonic() + MATCH_SECONDS
    for row in rows:
        texts = (row.name, *(f"{name}={value}" for name, value in (row.labels or {}).items()))
        if any(_found_in(text, wanted, deadline) for text in texts):
            yield row


def _found_in(text: str, wanted: Any, deadline: float) -> bool:
    """Other threads work meanwhile: a pattern that backtracks for long holds nobody up but its own request."""
    left = deadline - time.monotonic()
    try:
        if left > 0:
            return wanted.search(text, timeout=left, concurrent=True) is not None
    except TimeoutError:
        pass
    message = f"takes more than {MATCH_SECONDS:g} s to match; repeat nothing that repeats itself"
    raise Refusal.of_field(422, "over-limit", "q", message)


def _ranks(connection: Connection, rows: Sequence[Any], now: float) -> Mapping[int, int]:
    """By run id. A run that is silent and did not say that it is finished may have died of what was critical."""
    columns = (alerts.c.run_id, alerts.c.severity, alerts.c.state)
    open_: dict[int, set[str]] = {}
    for run, severity, state in connection.execute(select(*columns).where(alerts.c.state.in_((PENDING, ACTIVE)))):
        open_.setdefault(run, set()).add(severity if state == ACTIVE else PENDING)
    return {row.id: _rank(state_of(connection, row, row.step_seconds, now), open_.get(row.id, set())) for row in rows}


def _rank(state: str, open_: set[str]) -> int:
    if state == "finished":
        return FINISHED
    if state == "silent":
        return SILENT
    if "critical" in open_:
        return CRITICAL
    if "warning" in open_:
        return WARNING
    return PENDING_OR_INFO if open_ else HEALTHY
