"""Rows of `steps` as the values that decisions are made on: everything but the merge, which is large."""

from typing import Any, Final

from offpolicy_monitor.store.ledger import GradientStep
from offpolicy_monitor.store.tables import steps

LEDGER_COLUMNS: Final = (
    *(steps.c.id, steps.c.run_id, steps.c.step, steps.c.minibatch, steps.c.attempt, steps.c.shards, steps.c.received),
    *(steps.c.merged, steps.c.state, steps.c.minibatches, steps.c.policy_version, steps.c.superseded, steps.c.block),
    *(steps.c.first_received_at, steps.c.last_received_at),
)


def gradient_step(run: str, row: Any) -> GradientStep:
    """A row of LEDGER_COLUMNS as a value."""
    values = {column.name: row._mapping[column] for column in LEDGER_COLUMNS if column is not steps.c.run_id}
    return GradientStep(run=run, **values)
