"""Forms: what a record of named numbers must hold, as data.

A count is a whole number from 0 on, a number a finite fraction, a magnitude a number from 0 on. Names come in groups
of which all or none are there. Knows no record.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from offpolicy_monitor.summary.checks.faults import about_at_most, need
from offpolicy_monitor.summary.sums import LARGEST_COUNT, LARGEST_SUM

Kind = Literal["count", "number", "magnitude"]

#: Beyond the sums of any batch that is taken, and small enough to be squared; for sums of products, which are not
#: squared again, LARGEST_SUM.
LARGEST_NUMBER: Final = 1e150
PRODUCTS: Final = ("square", "deviation", "mismatch_staleness", "forward", "backward", "layers_moment")


@dataclass(frozen=True)
class Form:
    """The names of a record with their kinds: those always there, and groups of which all or none are.

    `at_most`: pairs of names, the first of which is at most the second, where both are there.
    """

    kinds: Mapping[str, Kind]
    groups: tuple[frozenset[str], ...] = field(default=())
    at_most: tuple[tuple[str, str], ...] = field(default=())

    def check(self, path: str, record: Mapping[str, Any]) -> None:
        """Raise InvalidSummaryError for a name too many or too few, a number of another kind, or one out of bounds."""
        for name, value in record.items():
            need(name in self.kinds, join(path, name), "is not a figure of this record")
            check_number(join(path, name), self.kinds[name], value)
        optional = frozenset().union(*self.groups)
        for name in self.kinds:
            need(name in record or name in optional, join(path, name), "required")
        for group in self.groups:
            present = [name for name in group if name in record]
            need(len(present) in (0, len(group)), path, f"has only some of {', '.join(sorted(group))}")
        for low, high in self.at_most:
            if low in record and high in record:
                need(about_at_most(record[low], record[high]), join(path, low), f"is more than {high}")


def form(
    counts: Iterable[str] = (),
    numbers: Iterable[str] = (),
    magnitudes: Iterable[str] = (),
    groups: Iterable[Iterable[str]] = (),
    at_most: tuple[tuple[str, str], ...] = (),
) -> Form:
    """A Form from the names of each kind."""
    kinds: dict[str, Kind] = {
        **dict.fromkeys(sorted(counts), "count"),
        **dict.fromkeys(sorted(numbers), "number"),
        **dict.fromkeys(sorted(magnitudes), "magnitude"),
    }
    return Form(kinds, tuple(map(frozenset, groups)), at_most)


def check_number(path: str, kind: Kind, value: Any) -> None:
    """Raise InvalidSummaryError where a value is not of its kind."""
    if kind == "count":
        need(type(value) is int and 0 <= value <= LARGEST_COUNT, path, "must be a whole number from 0 on")
        return
    need(isinstance(value, float) and math.isfinite(value), path, "must be a finite fraction")
    largest = LARGEST_SUM if path.endswith(PRODUCTS) else LARGEST_NUMBER
    need(abs(value) <= largest, path, f"is beyond {largest:g}")
    need(kind == "number" or value >= 0, path, "must not be negative")


def join(path: str, name: object) -> str:
    """The path of a part; what came from outside is cut and made printable."""
    part = str(name)[:64].encode("ascii", "replace").decode()
    return f"{path}.{part}" if path else part
