"""Decides what a group of shards does to their steps: a pure function of what is stored and of what arrives.

Each shard is stored once, refused or known already; a refusal leaves no trace. All minibatches of a step share one
attempt (the newest) and one number of shards. Asks no database: `ingest` loads a Ledger and writes what it decided.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.store.rows.gradient_steps import GradientStep
from offpolicy_monitor.store.rows.memory import Standing
from offpolicy_monitor.store.rows.records import Receipt, ShardKey, ShardRecord
from offpolicy_monitor.summary.step import StepSummary


@dataclass
class Ledger:
    """What is stored of the steps that a group touches, brought up to date shard by shard by `enter`."""

    steps: dict[tuple[str, int], Standing] = field(default_factory=dict)
    stored_summary: Callable[[ShardKey], StepSummary | None] | None = None
    accepted: dict[ShardKey, ShardRecord] = field(default_factory=dict)
    touched: dict[int, GradientStep] = field(default_factory=dict)
    step_of: dict[ShardKey, GradientStep] = field(default_factory=dict)

    def has(self, key: ShardKey) -> bool:
        """Whether this very shard is stored, or was entered."""
        standing = self.steps.get((key.run, key.step))
        return standing is not None and key in standing.shards

    def enter(self, record: ShardRecord) -> Receipt | Refusal:
        """Decide about one shard."""
        standing = self.steps.setdefault((record.key.run, record.key.step), Standing())
        minibatches = standing.gradient_steps
        known = next(iter(minibatches.values()), None)
        if known is not None and record.key.attempt < known.attempt:
            return _stale(record, known.attempt)
        if known is not None and record.key.attempt > known.attempt:
            self._supersede(minibatches)
        elif known is not None and record.shards != known.shards:
            return _disagreeing(record, known.shards)
        if record.key in standing.shards:
            return self._again(record, standing)
        if _is_settled(minibatches, record.key.minibatch):
            return _settled(record)
        return self._accept(record, standing)

    def _accept(self, record: ShardRecord, standing: Standing) -> Receipt:
        key, minibatches = record.key, standing.gradient_steps
        step = minibatches.get(key.minibatch)
        if step is None:
            step = GradientStep(
                key.run, key.step, key.minibatch, key.attempt, record.shards, record.received_at, record.received_at
            )
            minibatches[key.minibatch] = step
        step.add(record)
        self.touched[id(step)] = step
        standing.shards[key] = record.digest, record.received_at
        self.accepted[key] = record
        self.step_of[key] = step
        return _receipt(step, record.summary, duplicate=False)

    def _again(self, record: ShardRecord, standing: Standing) -> Receipt | Refusal:
        key = record.key
        step = standing.gradient_steps[key.minibatch]
        if standing.shards[key][0] != record.digest:
            return Refusal.of_field(
                409, "shard-conflict", "shard", f"shard {key.shard} of step {key.step} was stored with other content"
            )
        if key in self.accepted:
            return _receipt(step, self.accepted[key].summary, duplicate=True)
        assert self.stored_summary is not None
        # Of a settled step it is not kept any more; equal content has equal figures.
        found = None if record.is_stored else self.stored_summary(key)
        return _receipt(step, found or record.summary, duplicate=True)

    def _supersede(self, minibatches: dict[int, GradientStep]) -> None:
        for step in minibatches.values():
            step.superseded = True
            self.touched[id(step)] = step
        minibatches.clear()


def _receipt(step: GradientStep, summary: StepSummary, duplicate: bool) -> Receipt:
    return Receipt(
        duplicate=duplicate,
        received_shards=step.received,
        shards=step.shards,
        complete=step.received == step.shards,
        step_completed=not duplicate and step.due,
        summary=summary,
    )


def _stale(record: ShardRecord, newest: int) -> Refusal:
    key = record.key
    message = f"{key.attempt} is older than attempt {newest}, which step {key.step} was seen under"
    return Refusal.of_field(409, "stale-attempt", "attempt", message)


def _is_settled(minibatches: Mapping[int, GradientStep], minibatch: int) -> bool:
    """Whether a gradient step takes no more shards; a new one, whether its training step takes no more of them."""
    step = minibatches.get(minibatch)
    return step.block is not None if step else any(other.block for other in minibatches.values())


def _settled(record: ShardRecord) -> Refusal:
    message = (
        f"step {record.key.step} has settled without it, or is too old to tell; a step takes late shards for "
        "OFFPOLICY_SETTLE_AFTER seconds after its last one, and knows those it has for OFFPOLICY_THIN_AFTER"
    )
    return Refusal.of_field(409, "step-settled", "step", message)


def _disagreeing(record: ShardRecord, shards: int) -> Refusal:
    message = f"{record.shards} disagrees with the {shards} shards that step {record.key.step} began with"
    return Refusal.of_field(409, "shards-disagree", "shards", message)
