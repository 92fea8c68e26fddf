"""What goes into the store and what comes back: plain values, no database.

A shard is known by its key alone; its digest says whether the same key brings the same content again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.summary.step import StepSummary

#: A row of `steps`: run's id, step, minibatch, attempt. Ids of rows are used again after a row has gone, these are not.
StepKey = tuple[int, int, int, int]


class ShardKey(NamedTuple):
    """(run, attempt, step, minibatch, shard): what makes a shard the same shard."""

    run: str
    attempt: int
    step: int
    minibatch: int
    shard: int


@dataclass(frozen=True)
class ShardRecord:
    """One measured shard. `shards`: how many its gradient step has; `digest`: 16 bytes; `received_at`: unix seconds.

    `methods`: the rows it was measured by, as the run has them; the shard is refused by Outdated where others run.
    `blob`: the summary's stored form, where it was prepared already (store.write.prepare); empty where the summary is
    the one that the store answered for this shard, of which nothing is written and nothing looked up again.
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
    methods: Sequence[Mapping[str, Any]] | Literal["any"] | None = "any"
    blob: bytes | None = field(default=None, repr=False)

    def as_stored(self, summary: StepSummary) -> "ShardRecord":
        """The record of a shard that is stored already, with the summary that the store answered."""
        return replace(self, summary=summary, blob=b"")

    @property
    def is_stored(self) -> bool:
        """Whether it is `as_stored`; such a shard is refused by Outdated where it is not there any more."""
        return self.blob == b""


class Outdated(Refusal):
    """A shard was measured by other method rows than its run has."""

    def __init__(self) -> None:
        super().__init__(409, "methods-changed", "the method rows of the run were changed meanwhile; send it again")


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
    unmerged: StepKey | None = None
