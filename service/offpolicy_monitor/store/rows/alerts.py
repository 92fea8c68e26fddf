"""Alerts: one row per breach of one severity of a rule, from pending to active to resolved; written, listed and told.

Every function takes the caller's connection. What a rule is, is not known here: rows go by names.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, Select, bindparam, delete, insert, or_, select, update

from offpolicy_monitor.store.rows.access import seen_by
from offpolicy_monitor.store.rows.cursors import Page, cut, decode_cursor, encode_cursor
from offpolicy_monitor.store.rows.runs import run_id
from offpolicy_monitor.store.rows.statement import Statement
from offpolicy_monitor.store.rows.tables import ACTIVE, PENDING, RESOLVED, alerts, runs

#: What a judgement decides of an episode; what it leaves out is not known.
EPISODE: Final = (
    "alert", "severity", "state", "since_step", "last_step", "breach_steps", "value", "threshold", "peak",
    "active_step", "resolved_step", "message", "inhibited_by", "told_from", "quiet_since",
)  # fmt: skip
#: When it became active, and when it was resolved, unix seconds.
TIMES: Final = ("active_at", "resolved_at")
Episode = Mapping[str, Any]
#: States of what is not over.
OPEN: Final = (PENDING, ACTIVE)


def open_alerts(connection: Connection, run_ids: Iterable[int]) -> dict[int, list[dict[str, Any]]]:
    """The alerts of these runs that are not over or may come back, by run id, in the order they began."""
    wanted = list(run_ids)
    found: dict[int, list[dict[str, Any]]] = {run: [] for run in wanted}
    for row in connection.execute(_OPEN, {"wanted": wanted}).mappings():
        found[row["run_id"]].append(dict(row))
    return found


def open_alerts_of(connection: Connection, run: str) -> list[dict[str, Any]]:
    """Those of one run; none where there is no such run any more."""
    found = open_alerts(connection, connection.scalars(select(runs.c.id).where(runs.c.name == run)))
    return next(iter(found.values()), [])


def save(
    connection: Connection, run: int, before: Sequence[Mapping[str, Any]], after: Iterable[Episode], now: float
) -> list[dict[str, Any]] | None:
    """Bring a run's alerts from `before`, as of open_alerts, to `after`; what `after` lacks came to nothing and goes.

    Answers what open_alerts would answer now; None where some are new, and it must be asked.
    """
    known = {(row["alert"], row["severity"]): row for row in before}
    wanted = {(episode["alert"], episode["severity"]): episode for episode in after}
    gone = [row["id"] for key, row in known.items() if key not in wanted]
    if gone:
        connection.execute(delete(alerts).where(alerts.c.id.in_(gone)))
    new = [_entered(run, wanted[key], now) for key in wanted if key not in known]
    if new:
        connection.execute(insert(alerts), new)
    changed = [
        _changed(row, wanted[key], now)
        for key, row in known.items()
        if key in wanted and any(row[name] != wanted[key].get(name) for name in EPISODE)
    ]
    if changed:
        _UPDATE.run(connection, *changed)
    if new:
        return None
    values = {of.pop("key"): of for of in changed}
    rows = [{**row, **values.get(row["id"], {})} for key, row in known.items() if key in wanted]
    return [row for row in rows if row["state"] in OPEN or row["quiet_since"] is not None]


def end_all(connection: Connection, run: int, now: float) -> None:
    """A run is over: what was active is resolved, what was pending goes."""
    of_run = alerts.c.run_id == run
    connection.execute(delete(alerts).where(of_run, alerts.c.state == PENDING))
    connection.execute(update(alerts).where(of_run, alerts.c.state == RESOLVED).values(quiet_since=None))
    ended = {"state": RESOLVED, "resolved_at": now}
    connection.execute(update(alerts).where(of_run, alerts.c.state == ACTIVE).values(ended))


def list_alerts(
    connection: Connection, run: str | None, states: Sequence[str], limit: int, cursor: str | None, seen: str | None
) -> Page:
    """Alerts of one run or of all that an access token's pattern names, in these states, the newest first."""
    query = _rows().where(alerts.c.state.in_(states), *seen_by(seen)).order_by(alerts.c.id.desc()).limit(limit + 1)
    if run is not None:
        query = query.where(alerts.c.run_id == run_id(connection, run))
    if cursor is not None:
        query = query.where(alerts.c.id < decode_cursor(cursor, 1)[0])
    rows, more = cut(connection.execute(query).mappings().all(), limit)
    return Page(_with_evidence(connection, rows), encode_cursor(rows[-1]["id"]) if more else None)


def _with_evidence(connection: Connection, rows: Iterable[RowMapping]) -> list[dict[str, Any]]:
    """Alerts, those that are active and speak for others with the rules of these as `evidence`, the oldest first."""
    found: list[dict[str, Any]] = [dict(row.items()) for row in rows]  # pyrefly: ignore[bad-assignment]
    speaking = {row["run_id"] for row in found if row["state"] == ACTIVE and row["inhibited_by"] is None}
    of_run = open_alerts(connection, speaking) if speaking else {}
    spoken_for = {run: inhibited(rows) for run, rows in of_run.items()}
    for row in found:
        row["evidence"] = evidence_of(row, spoken_for.get(row["run_id"], {}))
    return found


def inhibited(open_: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """By the rule that speaks for them, the rules of a run's active alerts, each once, the oldest first."""
    found: dict[str, dict[str, None]] = {}
    for row in open_:
        if row["state"] == ACTIVE and row["inhibited_by"] is not None:
            found.setdefault(row["inhibited_by"], {})[row["alert"]] = None
    return {speaking: list(alerts) for speaking, alerts in found.items()}


def evidence_of(row: Mapping[str, Any], spoken_for: Mapping[str, Sequence[str]]) -> list[str]:
    """The rules for whose alerts this one speaks, of its run's inhibited ones; its own in another severity is none."""
    if row["state"] != ACTIVE or row["inhibited_by"] is not None:
        return []
    return [alert for alert in spoken_for.get(row["alert"], ()) if alert != row["alert"]]


def untold(connection: Connection, limit: int, since: float) -> list[dict[str, Any]]:
    """Alerts whose state has not been told, the oldest first; none that was over before `since` (unix seconds).

    One for which another one speaks is left out, and one that ended without having been told.
    """
    begun = (alerts.c.state == ACTIVE) & or_(alerts.c.told.is_(None), alerts.c.told == RESOLVED) & _SPEAKS
    over = (alerts.c.state == RESOLVED) & or_(alerts.c.told == ACTIVE, alerts.c.told.is_(None) & _SPEAKS)
    recent = or_(alerts.c.state == ACTIVE, alerts.c.resolved_at >= since)
    query = _rows().where(or_(begun, over), recent)
    return _with_evidence(connection, connection.execute(query.order_by(alerts.c.id).limit(limit)).mappings())


def mark_told(connection: Connection, alert: int, state: str) -> None:
    """Remember that this state of an alert has been told; one that was told as resolved meanwhile stays so."""
    later = (alerts.c.told == RESOLVED) & (alerts.c.state == RESOLVED)
    connection.execute(
        update(alerts).where(alerts.c.id == alert, or_(alerts.c.told.is_(None), ~later)).values(told=state)
    )


def firing(connection: Connection, resolved_since: float) -> list[dict[str, Any]]:
    """Alerts that are active, and those resolved since then (unix seconds), the oldest first; of those that people are
    told of, or were before another one spoke for them: what is active is told as long as it is."""
    lately = (alerts.c.state == RESOLVED) & (alerts.c.resolved_at >= resolved_since)
    query = _rows().where(or_(alerts.c.state == ACTIVE, lately), or_(_SPEAKS, alerts.c.told_from == 0))
    return _with_evidence(connection, connection.execute(query.order_by(alerts.c.id)).mappings())


def _rows() -> Select[Any]:
    return select(alerts, runs.c.name.label("run"), runs.c.profile).join(runs, runs.c.id == alerts.c.run_id)


#: People are told of it: no other one speaks for it, and it does not wait.
_SPEAKS: Final = alerts.c.inhibited_by.is_(None) & or_(alerts.c.told_from.is_(None), alerts.c.told_from == 0)

# Made once: putting a statement together takes as long as running it.
_OPEN: Final = (
    _rows()
    .where(
        alerts.c.run_id.in_(bindparam("wanted", expanding=True)),
        alerts.c.state.in_(OPEN) | alerts.c.quiet_since.is_not(None),
    )
    .order_by(alerts.c.id)
)
_UPDATE: Final = Statement(
    update(alerts)
    .where(alerts.c.id == bindparam("key", required=True))
    .values({name: bindparam(name, required=True) for name in (*TIMES, *EPISODE)})
)


def _entered(run: int, episode: Episode, now: float) -> dict[str, Any]:
    values = {name: episode.get(name) for name in EPISODE}
    return {**values, "run_id": run, "started_at": now, "active_at": now if episode["state"] == ACTIVE else None}


def _changed(row: Mapping[str, Any], episode: Episode, now: float) -> dict[str, Any]:
    values = {"key": row["id"], **{name: row[name] for name in TIMES}, **{name: episode.get(name) for name in EPISODE}}
    if episode["state"] == ACTIVE and row["active_at"] is None:
        values["active_at"] = now
    if episode["state"] != row["state"]:
        values["resolved_at"] = now if episode["state"] == RESOLVED else None
    return values
