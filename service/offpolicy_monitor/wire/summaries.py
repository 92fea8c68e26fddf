"""A posted summary: from the bytes of the array `summary` to a StepSummary that was checked as strictly as raw data.

Knows the limits and how a fault becomes a refusal; the forms are summary.stored's, the checks are summary.checks'. It
knows nothing of the method rows that a run has.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import zstandard

from offpolicy_monitor.batch import Array
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.summary.checks import InvalidSummaryError, Shard, check_names, checked
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.rows import AS_ARRAYS
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.stored import UNREADABLE, TooLargeError, packed_tree, version_2, version_3
from offpolicy_monitor.summary.stored.named import RecordError
from offpolicy_monitor.wire.arrays import SUMMARY, invalid
from offpolicy_monitor.wire.limits import Limits
from offpolicy_monitor.wire.message import Reduced
from offpolicy_monitor.wire.schema import Envelope

#: Lists and objects in the header, each of which costs a hundred times its bytes; a shard has some hundreds.
MOST_NODES: Final = 1 << 14

#: Method rows that a summary may have even where fewer may be chosen for a run: the default ones are as many.
MOST_ROWS: Final = 100
#: Bytes in which a frame of zstd says how large it is.
LONGEST_FRAME_HEADER: Final = 18

#: A summary, and the decompressed bytes that its digest is of.
Read = tuple[StepSummary, Sequence[bytes]]


def decode_summary(envelope: Envelope, array: Array, limits: Limits) -> Reduced:
    """The message of a body that holds a summary. Raises Refusal 413 (too large), 422 naming `summary.<path>`."""
    if envelope.rollout is not None:
        raise invalid("rollout", "does not go with a summary, which has no halves")
    content = array.tobytes()
    if not content or content[0] not in VERSIONS:
        known = ", ".join(map(str, VERSIONS))
        raise invalid(SUMMARY, f"is not of a stored version that this release takes: {known}")
    shard = _shard(envelope, limits)
    try:
        summary, parts = VERSIONS[content[0]](content[1:], shard, limits.max_summary_bytes)
        checked(summary, shard)
    except TooLargeError as error:
        raise limits.refusal(413, "max_summary_bytes", SUMMARY, "its size decompressed, bytes,") from error
    except (InvalidSummaryError, RecordError) as error:
        raise fault(error) from error
    except UNREADABLE as error:
        raise invalid(SUMMARY, f"is not in the stored form of a summary: {error!r:.200}") from error
    limits.check("max_tokens", f"{SUMMARY}.batch/tokens", int(summary.batch["tokens"]))
    limits.check("max_sequences", f"{SUMMARY}.batch/sequences", int(summary.batch["sequences"]))
    return Reduced(envelope, summary, tuple(parts))


def decompressed(stored: bytes | memoryview, most: int) -> int:
    """Bytes that a stored summary is taken for once decompressed, `most` where it does not say; 0 for other bytes.

    What is read in vain of bytes that are no summary after all takes less.
    """
    content = memoryview(stored)
    if not content or content[0] not in VERSIONS:
        return 0
    if content[0] < AS_ARRAYS:
        return most if packed_tree.is_packed(content[1:]) else 0
    try:
        size = zstandard.frame_content_size(content[1 : 1 + LONGEST_FRAME_HEADER])
    except zstandard.ZstdError:
        return 0
    return min(max(size, 0), most)


def _read_2(stored: bytes, shard: Shard, most: int) -> Read:
    """What releases up to 0.1 post."""
    parts = packed_tree.inflated(stored, most)
    _check_nodes(parts[0])
    tree, texts = packed_tree.read(parts)
    check_names(tree["tables"], texts["specs"], shard)
    return version_2.from_tree(tree, texts), parts


def _read_arrays(version: int, stored: bytes, shard: Shard, most: int) -> Read:
    found = version_3.content(stored, most)
    _check_nodes(b"".join(version_3.headers_of(found)))
    return version_3.parsed(found, version, check=partial(check_names, shard=shard)), [found]


def _check_nodes(header: bytes) -> None:
    if header.count(b"[") + header.count(b"{") > MOST_NODES:
        raise invalid(SUMMARY, f"has more than {MOST_NODES} lists and objects")


#: Versions of the stored form that a trainer may post.
VERSIONS: Final[Mapping[int, Callable[[bytes, Shard, int], Read]]] = {
    2: _read_2,
    **{version: partial(_read_arrays, version) for version in range(AS_ARRAYS, LAYOUT.version + 1)},
}


def fault(error: InvalidSummaryError | RecordError) -> Refusal:
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
        limits.max_summary_tables,
        max(limits.max_run_methods, MOST_ROWS),
    )
