"""What is kept of a shard's message: its record, without tokens and sequence ids. Pure; the same in every process."""

from typing import Final

from offpolicy_monitor.batch import Origin
from offpolicy_monitor.pipeline.remembered import Rows
from offpolicy_monitor.store import ShardKey, ShardRecord
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.wire.digest import content_digest, reduced_digest
from offpolicy_monitor.wire.message import Message, Reduced
from offpolicy_monitor.wire.schema import Envelope

#: The summary of a shard that is still to be measured.
UNMEASURED: Final = StepSummary.empty()


def digest_of(message: Message | Reduced) -> bytes:
    """16 bytes, equal for equal content."""
    return reduced_digest(message) if isinstance(message, Reduced) else content_digest(message)


def origin_of(message: Message) -> Origin:
    """Where a message says that its batch comes from."""
    envelope = message.envelope
    return Origin(envelope.policy_version, envelope.shard, dict(envelope.labels))


def small(envelope: Envelope) -> Envelope:
    """The envelope without its sequence ids."""
    return envelope if envelope.sequence_ids is None else envelope.model_copy(update={"sequence_ids": None})


def dtypes_of(message: Message | Reduced) -> dict[str, str]:
    """The dtypes that arrays were sent in, by their names; none of a reduced shard."""
    return {} if isinstance(message, Reduced) else dict(message.batch.dtypes)


def key_of(run: str, envelope: Envelope) -> ShardKey:
    """The key of a shard of a run."""
    return ShardKey(run, envelope.attempt, envelope.step, envelope.minibatch, envelope.shard)


def record_of(
    run: str,
    received_at: float,
    envelope: Envelope,
    digest: bytes,
    dtypes: dict[str, str],
    summary: StepSummary = UNMEASURED,
    rows: Rows | None = None,
) -> ShardRecord:
    """The record of a shard that was measured by these rows; without a summary of one that is still to be measured."""
    return ShardRecord(
        key=key_of(run, envelope),
        shards=envelope.shards,
        digest=digest,
        summary=summary,
        minibatches=envelope.minibatches,
        policy_version=envelope.policy_version,
        labels=dict(envelope.labels),
        dtypes=dtypes,
        received_at=received_at,
        methods="any" if rows is None else rows.stored,
    )
