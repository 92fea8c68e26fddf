"""Longest: how many sequences are as long as the longest one, as those are that an engine stops at a cap.

A shard counts those of its own longest length. Of a merge the largest of these lengths stands, with all that have it:
a shard whose longest sequence is shorter has none of them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from offpolicy_monitor.summary import rows as schema
from offpolicy_monitor.summary.arrays import Array, Arrays, Sparse
from offpolicy_monitor.summary.faults import need
from offpolicy_monitor.summary.kind import Kind

if TYPE_CHECKING:
    from offpolicy_monitor.summary.checks.facts import Facts

TABLE: Final = schema.Table(
    "longest",
    (schema.count("sequences", "sequences with a token", at_most="batch/sequences"),),
    "whose longest sequences are known",
    since=6,
)
BY_LENGTH: Final = schema.Table(
    "longest/at",
    (
        schema.count(
            "",
            "sequences as long as the longest of their shard, by length",
            schema.SPARSE,
            at_most="longest/sequences",
        ),
    ),
    "the longest sequences of each shard",
    since=6,
)


def longest_sums(offsets: Array) -> tuple[int, Sparse] | None:
    """How many sequences have a token, and how many the most tokens, by the offsets [S+1]; None without a token."""
    lengths = np.diff(offsets)
    most = lengths.max(initial=0)
    if not most:
        return None
    return int(np.count_nonzero(lengths)), (np.array([most]), np.array([np.count_nonzero(lengths == most)]))


def longest(arrays: Arrays) -> dict[str, float]:
    """`sequence_length_max` in tokens, and `longest_fraction`: the share of the sequences that have that length."""
    sequences = arrays.record(TABLE.path).get("sequences")
    lengths, numbers = arrays.at(BY_LENGTH.path)
    if not sequences or not len(lengths):
        return {}
    return {"sequence_length_max": int(lengths[-1]), "longest_fraction": int(numbers[-1]) / sequences}


def _check(facts: "Facts", parts: Sequence[str], path: str) -> None:
    if path == BY_LENGTH.path:
        lengths, most = facts.arrays.at(path)[0], min(facts.whole["tokens"], facts.shard.longest_sequence)
        need(bool(((lengths > 0) & (lengths <= most)).all()), path, f"must be of lengths from 1 to {most}")


KIND: Final = Kind(
    "longest",
    (TABLE, BY_LENGTH),
    longest,
    unnamed=True,
    total=True,
    of_shards=True,
    looked_at=(TABLE.path,),
    check=_check,
)
