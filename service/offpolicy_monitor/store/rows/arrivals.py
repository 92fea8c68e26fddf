"""Arrivals: how the newest gradient steps of a run have come, whether or not they count."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from offpolicy_monitor.store.rows.runs import run_id
from offpolicy_monitor.store.rows.steps import in_range
from offpolicy_monitor.store.rows.tables import steps

COLUMNS = (steps.c.step, steps.c.minibatch, steps.c.shards, steps.c.received, steps.c.policy_version)


def read_arrivals(connection: Connection, run: str, most: int) -> Sequence[Any]:
    """(step, minibatch, shards, received, policy_version) of the newest `most` that stand, ascending."""
    query = select(*COLUMNS).where(*in_range(run_id(connection, run), None, None))
    newest = query.order_by(steps.c.step.desc(), steps.c.minibatch.desc()).limit(most)
    return connection.execute(newest).all()[::-1]
