"""What can be plotted of steps beside figures: which policy version and attempt each was of, when it came, and what the
rules came to.

A verdict is of the training step: `skip` where a breach of a critical threshold had lasted long enough at it and was
not over, `warn` where that of a warning one, else `accept`. Every function takes the caller's connection.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select

from offpolicy_monitor.store.rows.codec import unpack
from offpolicy_monitor.store.rows.tables import ACTIVE, alerts, judgements, steps
from offpolicy_monitor.store.rows.verdicts import VERDICTS
from offpolicy_monitor.timestamps import timestamp

#: What is read of each step for them, the times in unix seconds.
COLUMNS: Final = (steps.c.policy_version, steps.c.attempt, steps.c.first_received_at, steps.c.last_received_at)
#: Columns by name; each is made of the rows, which begin with the step, and have COLUMNS by their names.
Reader = Callable[[Connection, int, Sequence[Any]], list[Any]]
#: By severity, what an active alert of it makes of a verdict: an index among VERDICTS.
_SEVERITIES: Final[Mapping[str, int]] = {"warning": 1, "critical": 2}


def _policy_versions(connection: Connection, run: int, rows: Sequence[Any]) -> list[Any]:
    return [row.policy_version for row in rows]


def _attempts(connection: Connection, run: int, rows: Sequence[Any]) -> list[Any]:
    return [row.attempt for row in rows]


def _times(connection: Connection, run: int, rows: Sequence[Any]) -> list[Any]:
    return [timestamp(row.last_received_at) for row in rows]


def _verdicts(connection: Connection, run: int, rows: Sequence[Any]) -> list[Any]:
    """Null where the rules have not looked at the step yet."""
    return [None if found is None else verdict_of(found) for found in active_at(connection, run, rows)]


def verdict_of(active: Sequence[tuple[str, str]]) -> str:
    """What (rule, severity) of active alerts come to."""
    return VERDICTS[max((_SEVERITIES[severity] for _, severity in active), default=0)]


def active_at(connection: Connection, run: int, rows: Sequence[Any]) -> list[list[tuple[str, str]] | None]:
    """The (rule, severity) of warnings and worse that were active at each step; None before the rules looked at it.

    `rows` have a step, an attempt and the time of the first shard.
    """
    judged = connection.execute(select(judgements).where(judgements.c.run_id == run)).one_or_none()
    if judged is None or judged.step is None or not rows:
        return [None] * len(rows)
    at = np.array([row.step for row in rows], np.int64)
    began = np.array([row.first_received_at for row in rows])
    found: list[list[tuple[str, str]]] = [[] for _ in rows]
    lasting = {(state["alert"], state["severity"]): state.get("required_steps", 1) for state in _states(judged)}
    told = _alerts(connection, run)
    known, beginnings = _training_steps(connection, run) if told else (at[:0], began[:0])
    for alert in told:
        from_ = np.searchsorted(known, alert.since_step) + lasting.get((alert.alert, alert.severity), 1) - 1
        if from_ >= len(known):
            continue
        breaches = alert.state == ACTIVE and alert.quiet_since is None
        here = (at >= known[from_]) & ((at <= alert.last_step) | breaches)
        if alert.resolved_at is not None and any(row.attempt for row in rows):
            here &= began < _replaced_from(alert, known, beginnings)
        for index in np.flatnonzero(here):
            found[index].append((alert.alert, alert.severity))
    return [active if step <= judged.step else None for step, active in zip(at, found, strict=True)]


def _replaced_from(alert: Any, known: NDArray[np.int64], beginnings: NDArray[np.float64]) -> float:
    """When a later attempt began to replace the steps of a breach that is over, unix seconds.

    The step that ended the breach is the newest of its time; where it lies before the last one that breached, it is of
    such an attempt.
    """
    before = np.where(beginnings <= alert.resolved_at, beginnings, -np.inf)
    newest = int(before.argmax())
    return float(before[newest]) if known[newest] < alert.last_step else float(alert.resolved_at)


def _states(judged: Any) -> Iterator[Mapping[str, Any]]:
    yield from unpack(judged.states)["states"]


def _training_steps(connection: Connection, run: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """[N] each: the steps of a run that stand, ascending, and when the first shard of each came."""
    query = select(steps.c.step, func.min(steps.c.first_received_at)).where(steps.c.run_id == run, ~steps.c.superseded)
    found = connection.execute(query.group_by(steps.c.step).order_by(steps.c.step)).all()
    return np.array([row[0] for row in found], np.int64), np.array([row[1] for row in found], np.float64)


def _alerts(connection: Connection, run: int) -> Sequence[Any]:
    """The breaches of rules on steps that were told, or are to be."""
    lasted = alerts.c.active_at.is_not(None) & alerts.c.since_step.is_not(None)
    columns = (alerts.c.alert, alerts.c.severity, alerts.c.state, alerts.c.since_step, alerts.c.last_step)
    query = select(*columns, alerts.c.quiet_since, alerts.c.resolved_at).where(alerts.c.run_id == run, lasted)
    return connection.execute(query.where(alerts.c.severity.in_(list(_SEVERITIES)))).all()


READERS: Final[Mapping[str, Reader]] = {
    "policy_version": _policy_versions,
    "attempt": _attempts,
    "verdict": _verdicts,
    "received_at": _times,
}
#: What thinning keeps the extremes of, where a column is not of numbers; None where nothing of it need be kept.
_SIZES: Final[Mapping[str, Callable[[Any], float] | None]] = {
    "verdict": lambda word: float(VERDICTS.index(word)),
    "received_at": None,
}


def sizes(name: str, values: Sequence[Any]) -> NDArray[np.float64] | None:
    """A column as numbers, NaN where a value is absent; None where nothing of it need be kept."""
    size = _SIZES.get(name, float)
    if size is None:
        return None
    return np.array([np.nan if value is None else size(value) for value in values], np.float64)
