"""Facts: what the sums of a checked summary say, against which its tables are checked. Knows no table by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.checks.shard import Shard
from offpolicy_monitor.summary.faults import need
from offpolicy_monitor.summary.step import StepSummary


@dataclass(frozen=True, eq=False)
class Facts:
    """A summary whose rows were checked one by one, and what is known of its shard."""

    summary: StepSummary
    shard: Shard

    @property
    def arrays(self) -> Arrays:
        """Its numbers."""
        return self.summary.arrays

    @cached_property
    def whole(self) -> Mapping[str, int]:
        """`tokens` of the batch, and `sequences` that are not empty."""
        batch = self.summary.batch
        return {"tokens": int(batch["tokens"]), "sequences": int(batch["sequences"] - batch["empty_sequences"])}

    def count(self, gap: str, unit: str = "tokens") -> int:
        """Valid tokens, or sequences, of a gap that is there; 0 of one that is not."""
        found = self.summary.gaps.get(gap)
        return int(found.sums.get(unit, 0)) if found else 0

    def check_gap(self, gap: str, path: str) -> None:
        """Raise InvalidSummaryError for a gap without tokens."""
        need(self.count(gap) > 0, path, "is of a gap without tokens")
