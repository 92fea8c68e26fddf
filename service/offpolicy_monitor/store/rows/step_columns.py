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
from offpolicy_monitor.store.rows.step_index import ABSENT, StepIndex
from offpolicy_monitor.store.rows.tables import ACTIVE, OPEN, UNMERGED, alerts, judgements, steps
from offpolicy_monitor.timestamps import timestamp
from offpolicy_monitor.vocabulary import VERDICTS

#: [n] of steps.
Numbers = NDArray[Any]

#: Columns by name, at the steps of an index: numbers, which `words` makes answers of.
Reader = Callable[[Connection, int, StepIndex], Numbers]
#: By severity, what an active alert of it makes of a verdict: an index among VERDICTS.
_SEVERITIES: Final[Mapping[str, int]] = {"warning": 1, "critical": 2}
#: Of a step that the rules have not looked at yet.
_UNJUDGED: Final = -1


def _verdicts(connection: Connection, run: int, index: StepIndex) -> Numbers:
    """Indices among VERDICTS."""
    judged = _judged(connection, run)
    found = np.zeros(len(index), np.int64)
    if judged is None or not len(index):
        return np.full(len(index), _UNJUDGED)
    for _, severity, here in _active(connection, run, judged, index.step, index.first_received_at, index.attempt):
        np.maximum(found, _SEVERITIES[severity], out=found, where=here)
    found[index.step > judged.step] = _UNJUDGED
    return found


def verdict_of(active: Sequence[tuple[str, str]]) -> str:
    """What (rule, severity) of active alerts come to."""
    return VERDICTS[max((_SEVERITIES[severity] for _, severity in active), default=0)]


def active_at(connection: Connection, run: int, rows: Sequence[Any]) -> list[list[tuple[str, str]] | None]:
    """The (rule, severity) of warnings and worse that were active at each step; None before the rules looked at it.

    `rows` have a step, an attempt and the time of the first shard; no step of the run that counts lies between them
    that is not among them.
    """
    judged = _judged(connection, run)
    if judged is None or not rows:
        return [None] * len(rows)
    at, attempts = np.array([row.step for row in rows], np.int64), np.array([row.attempt for row in rows], np.int64)
    began = np.array([row.first_received_at for row in rows])
    found: list[list[tuple[str, str]]] = [[] for _ in rows]
    for alert, severity, here in _active(connection, run, judged, at, began, attempts):
        for index in np.flatnonzero(here):
            found[index].append((alert, severity))
    return [active if step <= judged.step else None for step, active in zip(at, found, strict=True)]


def _judged(connection: Connection, run: int) -> Any:
    """The judgement of the run's newest step; None where no step was judged."""
    judged = connection.execute(select(judgements).where(judgements.c.run_id == run)).one_or_none()
    return None if judged is None or judged.step is None else judged


def _active(
    connection: Connection,
    run: int,
    judged: Any,
    at: NDArray[np.int64],
    began: NDArray[np.float64],
    attempts: NDArray[np.int64],
) -> Iterator[tuple[str, str, NDArray[np.bool_]]]:
    """(rule, severity, [n] bool: at which of these steps it was active) of each breach."""
    lasting = {(state["alert"], state["severity"]): state.get("required_steps", 1) for state in _states(judged)}
    told = _alerts(connection, run)
    if not told:
        return
    replaced = bool(attempts.any())
    known, beginnings = _training_steps(connection, run) if replaced else (at, began)
    if not replaced:
        known = _known(connection, run, at, max(lasting.values(), default=1))
    for alert in told:
        from_ = np.searchsorted(known, alert.since_step) + lasting.get((alert.alert, alert.severity), 1) - 1
        if from_ >= len(known):
            continue
        breaches = alert.state == ACTIVE and alert.quiet_since is None
        here = (at >= known[from_]) & ((at <= alert.last_step) | breaches)
        if alert.resolved_at is not None and replaced:
            here &= began < _replaced_from(alert, known, beginnings)
        yield alert.alert, alert.severity, here


def _known(connection: Connection, run: int, at: NDArray[np.int64], before: int) -> NDArray[np.int64]:
    """[N] the steps of the run that stand from some before the first of `at` to its last, ascending.

    `at` are those that count, ascending; what was breached longer ago than `before` steps was so for long enough.
    """
    of_run = (steps.c.run_id == run, ~steps.c.superseded)
    first, last = int(at.min()), int(at.max())
    earlier = select(steps.c.step).where(*of_run, steps.c.step < first).distinct()
    earlier = earlier.order_by(steps.c.step.desc()).limit(before)
    incomplete = select(steps.c.step).where(*of_run, UNMERGED, steps.c.state == OPEN)
    incomplete = incomplete.where(steps.c.step.between(first, last))
    others = [*connection.scalars(earlier), *connection.scalars(incomplete)]
    different = at[np.append(True, at[1:] != at[:-1])]
    return np.union1d(different, np.array(others, np.int64)) if others else different


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
    "policy_version": lambda connection, run, index: index.policy_version,
    "attempt": lambda connection, run, index: index.attempt,
    "verdict": _verdicts,
    "received_at": lambda connection, run, index: index.last_received_at,
}
#: How a number of a column is answered.
_WORDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "policy_version": lambda version: None if version == ABSENT else version,
    "attempt": int,
    "verdict": lambda index: None if index == _UNJUDGED else VERDICTS[index],
    "received_at": timestamp,
}
#: What stands for an absent value; a column that has none of these need keep no extremes.
_ABSENT: Final[Mapping[str, int | None]] = {"policy_version": ABSENT, "attempt": None, "verdict": _UNJUDGED}


def words(name: str, numbers: Numbers) -> list[Any]:
    """A column as it is answered; null where the rules have not looked at a step, or no version was sent."""
    return [_WORDS[name](number) for number in numbers.tolist()]


def sizes(name: str, numbers: Numbers) -> NDArray[np.float64] | None:
    """What thinning keeps the extremes of, NaN where a value is absent; None where nothing of it need be kept."""
    if name not in _ABSENT:
        return None
    return np.where(numbers == _ABSENT[name], np.nan, numbers) if _ABSENT[name] is not None else numbers.astype(float)
