"""A posted summary: from the bytes of the array `summary` to a StepSummary that was checked as strictly as raw data.

Knows the limits and how a fault becomes a refusal; the form is summary.stored's, the checks are summary.checks'. It
knows nothing of the method rows that a run has.
"""

import struct
import zlib
from typing import Final

from offpolicy_monitor.batch import Array
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.summary import packing, stored
from offpolicy_monitor.summary.checks import InvalidSummaryError, Shard, checked
from offpolicy_monitor.wire.arrays import SUMMARY, invalid
from offpolicy_monitor.wire.limits import Limits
from offpolicy_monitor.wire.message import Reduced
from offpolicy_monitor.wire.schema import Envelope

#: Versions of the stored form that a trainer may post.
VERSIONS: Final = (stored.VERSION,)
#: Lists and objects in the header, each of which costs a hundred times its bytes; a shard has some hundreds.
MOST_NODES: Final = 1 << 16
_UNREADABLE = (zlib.error, struct.error, ValueError, TypeError, LookupError, AttributeError, RuntimeError)


def decode_summary(envelope: Envelope, array: Array, limits: Limits) -> Reduced:
    """The message of a body that holds a summary. Raises Refusal 413 (too large), 422 naming `summary.<path>`."""
    if envelope.rollout is not None:
        raise invalid("rollout", "does not go with a summary, which has no halves")
    content = array.tobytes()
    if not content or content[0] not in VERSIONS:
        known = ", ".join(map(str, VERSIONS))
        raise invalid(SUMMARY, f"is not of a stored version that this release takes: {known}")
    try:
        parts = packing.inflated(content[1:], limits.max_summary_bytes)
        if parts[0].count(b"[") + parts[0].count(b"{") > MOST_NODES:
            raise invalid(SUMMARY, f"has more than {MOST_NODES} lists and objects")
        tree, texts = packing.read(parts)
        summary = checked(tree, texts, _shard(envelope, limits), limits.max_summary_tables)
    except packing.TooLargeError as error:
        raise limits.refusal(413, "max_summary_bytes", SUMMARY, "its size decompressed, bytes,") from error
    except InvalidSummaryError as error:
        raise fault(error) from error
    except _UNREADABLE as error:
        raise invalid(SUMMARY, f"is not in the stored form of a summary: {error!r:.200}") from error
    limits.check("max_tokens", f"{SUMMARY}.batch.tokens", int(summary.batch["tokens"]))
    limits.check("max_sequences", f"{SUMMARY}.batch.sequences", int(summary.batch["sequences"]))
    return Reduced(envelope, summary, tuple(parts))


def fault(error: InvalidSummaryError) -> Refusal:
    """The 422 of a part of a summary."""
    path = f"{SUMMARY}.{error.path}" if error.path else SUMMARY
    return Refusal.of_field(422, "invalid-field", path, error.message)


def _shard(envelope: Envelope, limits: Limits) -> Shard:
    ids = envelope.sequence_ids
    return Shard(
        envelope.shard,
        envelope.labels,
        envelope.policy_version,
        None if ids is None else tuple(ids),
        limits.max_sequence_id_length,
        limits.max_sequence_length,
        limits.keep_worst,
    )
