"""What goes into the store and what comes back: plain values, no database.

A shard is known by its key alone; its digest says whether the same key brings the same content again.
"""

from dataclasses import dataclass, field
from typing import Any

from offpolicy_monitor.summary.step import StepSummary

#: A row of `steps`: run's id, step, minibatch, attempt. Ids of rows are used again after a row has gone, these are not.
Place = tuple[int, int, int, int]


@dataclass(frozen=True, order=True)
class ShardKey:
    """(run, attempt, step, minibatch, shard): what makes a shard the same shard."""

    run: str
    attempt: int
    step: int
    minibatch: int
    shard: int


@dataclass(frozen=True)
class ShardRecord:
    """One measured shard. `shards`: how many its gradient step has; `digest`: 16 bytes; `received_at`: unix seconds.

    `blob`: the summary's stored form, where it was prepared already (store.write.prepare).
    """

    key: ShardKey
    shards: int
    digest: bytes
    summary: StepSummary
    received_at: float
    minibatches: int | None = None
    policy_version: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    blob: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Receipt:
    """The answer to a stored shard.

    `received_shards`, `shards`, `complete` are of its gradient step as the shard left it. `summary` is the stored one:
    for a duplicate that of the first arrival. `step_completed`: this write merged the step, complete or closed.
    `unmerged`: the step, where this shard is stored but the merge with it is still to be made (Upkeep.merge).
    `verdict` and `alerts` (the run's rows that are not over, the worst of each rule) are of the run after this write.
    """

    duplicate: bool
    received_shards: int
    shards: int
    complete: bool
    step_completed: bool
    summary: StepSummary
    verdict: str = "accept"
    alerts: tuple[dict[str, Any], ...] = ()
    unmerged: Place | None = None
