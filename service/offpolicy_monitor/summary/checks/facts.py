"""Facts: what the sums of a checked summary say, against which its tables are checked; and checks of sparse counts.

Knows no table by name.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from offpolicy_monitor.summary.checks.faults import InvalidSummaryError, need
from offpolicy_monitor.summary.checks.forms import join
from offpolicy_monitor.summary.checks.records import Shard
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.sums import LARGEST_COUNT
from offpolicy_monitor.summary.tables import Table, Tables

#: Digits of a bin or a lag, which fits 64 bits: none needs more.
MOST_DIGITS: Final = 19


@dataclass(frozen=True, eq=False)
class Facts:
    """A summary whose records were checked, and what is known of its shard."""

    summary: StepSummary
    shard: Shard

    @property
    def tables(self) -> Tables:
        """All tables."""
        return self.summary.tables

    @cached_property
    def whole(self) -> Mapping[str, int]:
        """`tokens` of the batch, and `sequences` that are not empty."""
        batch = self.summary.batch
        return {"tokens": int(batch["tokens"]), "sequences": int(batch["sequences"] - batch["empty_sequences"])}

    def count(self, gap: str, unit: str = "tokens") -> int:
        """Valid tokens, or sequences, of a gap that is there; 0 of one that is not."""
        found = self.summary.gaps.get(gap)
        return int(found.sums.get(unit, 0)) if found else 0

    @property
    def joint(self) -> int:
        """Tokens valid for all three gaps."""
        return int(self.summary.cross.get("tokens", 0))

    def check_gap(self, gap: str, path: str) -> None:
        """Raise InvalidSummaryError for a gap without tokens."""
        need(self.count(gap) > 0, path, "is of a gap without tokens")


def parts_of(rest: Collection[str], number: int, path: str) -> list[str]:
    """The parts of a table's name behind its kind; InvalidSummaryError unless there are `number`."""
    need(len(rest) == number, path, "is no name of a table")
    return list(rest)


def check_sparse(path: str, table: Table, bins: int, total: int | None = None, least: int = 0) -> None:
    """Raise InvalidSummaryError unless keys are bins (least <= i < bins) and values counts from 1 on that make `total`.

    Without a total the counts may make any.
    """
    for key, value in table.items():
        if not (type(value) is int and 0 < value <= LARGEST_COUNT):
            raise InvalidSummaryError(join(path, key), "must be a whole number from 1 on")
        if not least <= whole_number(key, path) < bins:
            raise InvalidSummaryError(join(path, key), "is no bin")
    if total is not None:
        found = sum(table.values())
        need(found == total, path, f"count {found}, not {total}")


def whole_number(text: str, path: str) -> int:
    """The number that a name is, as `str` writes it; InvalidSummaryError where it is none."""
    digits = text.removeprefix("-")
    if not (text.isascii() and digits.isdigit() and len(digits) <= MOST_DIGITS and str(int(text)) == text):
        raise InvalidSummaryError(join(path, text), "is no whole number")
    return int(text)
