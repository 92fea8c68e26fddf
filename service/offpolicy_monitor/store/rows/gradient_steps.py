"""Gradient steps as the values that decisions are made on: all of a row of `steps` but the merge, which is large."""

from dataclasses import dataclass
from typing import Any, Final

from offpolicy_monitor.store.rows.records import ShardRecord
from offpolicy_monitor.store.rows.tables import CLOSED, COMPLETE, OPEN, steps

LEDGER_COLUMNS: Final = (
    *(steps.c.id, steps.c.run_id, steps.c.step, steps.c.minibatch, steps.c.attempt, steps.c.shards, steps.c.received),
    *(steps.c.merged, steps.c.state, steps.c.minibatches, steps.c.policy_version, steps.c.superseded, steps.c.block),
    *(steps.c.first_received_at, steps.c.last_received_at),
)
_NAMES: Final = tuple(column.name for column in LEDGER_COLUMNS)


@dataclass
class GradientStep:
    """One row of `steps`: a gradient step under one attempt. `id` is None until it is stored.

    `merged`: how many of its shards the merge that is kept is of, None where none is. `state` says what that merge is:
    OPEN none, CLOSED of some shards, COMPLETE of all. `block`: set once it takes no more shards (rows.tables.steps).
    """

    run: str
    step: int
    minibatch: int
    attempt: int
    shards: int
    first_received_at: float
    last_received_at: float
    received: int = 0
    merged: int | None = None
    minibatches: int | None = None
    policy_version: int | None = None
    state: str = OPEN
    superseded: bool = False
    id: int | None = None
    block: int | None = None

    @property
    def counts(self) -> bool:
        """Whether its merge is kept and may be shown as the run's last step."""
        return self.state in (CLOSED, COMPLETE)

    @property
    def due(self) -> bool:
        """Whether it should count with shards that are not in its merge yet: all have come, or its time was up."""
        return (self.merged or 0) < self.received and (self.received == self.shards or self.counts)

    @property
    def forgotten(self) -> bool:
        """Superseded before it counted: nothing will ever show it."""
        return self.superseded and not self.counts

    def keep(self, merged: int) -> None:
        """Let it count with so many of its shards."""
        self.merged, self.state = merged, COMPLETE if merged == self.shards else CLOSED

    def add(self, record: ShardRecord) -> None:
        """Count one more shard."""
        self.received += 1
        self.first_received_at = min(self.first_received_at, record.received_at)
        self.last_received_at = max(self.last_received_at, record.received_at)
        self.minibatches = _largest(self.minibatches, record.minibatches)
        self.policy_version = _largest(self.policy_version, record.policy_version)


def gradient_step(run: str, row: Any) -> GradientStep:
    """A row that begins with LEDGER_COLUMNS as a value."""
    values = dict(zip(_NAMES, row, strict=False))
    del values["run_id"]
    return GradientStep(run=run, **values)


def _largest(left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return max(left, right)
