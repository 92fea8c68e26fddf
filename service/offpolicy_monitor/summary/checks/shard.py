"""What is known of a shard beside its summary."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Shard:
    """A shard's number, labels, policy version and ids, and what its summary may keep."""

    number: int
    labels: Mapping[str, str] = field(default_factory=dict)
    policy_version: int | None = None
    sequence_ids: tuple[str, ...] | None = None
    longest_id: int = 256
    longest_sequence: int = 1 << 31
    keep_worst: int = 0
    most_tables: int = 1 << 12
    most_rows: int = 100
