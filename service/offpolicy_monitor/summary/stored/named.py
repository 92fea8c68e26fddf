"""Named records: a summary as it was spelled before it was arrays, each number by its name.

Stored versions 1 and 2 are read through here. A table's name is its path; the entries of an array are named by their
indices, those of a breakdown by their buckets, one record per bucket.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from offpolicy_monitor.errors import OffpolicyMonitorError
from offpolicy_monitor.summary.arrays import Array, Arrays
from offpolicy_monitor.summary.gap import QUANTITIES, SIGNS
from offpolicy_monitor.summary.histogram import BINS
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.merge import merged
from offpolicy_monitor.summary.method import Spec, path_of
from offpolicy_monitor.summary.rows import NAMED, SPARSE, Layout, Row, name_of
from offpolicy_monitor.summary.scheme import COUNTS
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.tables.buckets import BUCKETS
from offpolicy_monitor.summary.tables.worst import Worst
from offpolicy_monitor.vocabulary import GAPS

Record = Mapping[str, float]

#: `quantity/sign` of each of a gap's histograms.
HISTOGRAMS: Final = frozenset(f"{quantity}/{sign}" for quantity in QUANTITIES for sign in SIGNS)
#: Tables that left out what was zero.
LEFT_OUT: Final = "signature/grid/"


class RecordError(OffpolicyMonitorError, ValueError):
    """A record that no summary has; `path` says which, `message` what is wrong."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path, self.message = path, message


@dataclass(frozen=True)
class Parts:
    """The parts of a summary by name: records of the batch, of gaps, of methods, across gaps, and tables by path.

    `histograms`: gap -> `quantity/sign` -> [BINS] counts. `specs`: method -> its row.
    """

    batch: Record = field(default_factory=dict)
    gaps: Mapping[str, Record] = field(default_factory=dict)
    histograms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    methods: Mapping[str, Record] = field(default_factory=dict)
    specs: Mapping[str, Spec | None] = field(default_factory=dict)
    cross: Record = field(default_factory=dict)
    tables: Mapping[str, Record] = field(default_factory=dict)
    worst: Worst = field(default_factory=Worst)


def summary_of(parts: Parts) -> StepSummary:
    """The summary of these parts. RecordError for a name, or a number, that no summary has."""
    records: dict[str, Record] = {"batch": parts.batch} if parts.batch else {}
    records |= {f"gaps/{name}": sums for name, sums in parts.gaps.items()}
    records |= {path_of(name): sums for name, sums in parts.methods.items()}
    records |= {"cross": parts.cross} if parts.cross else {}
    arrays = arrays_of({**records, **parts.tables})
    histograms = {f"histograms/{name}": _histograms(name, parts.histograms.get(name, {})) for name in parts.gaps}
    whole = merged([arrays, Arrays.of(LAYOUT, histograms)])
    later = [table.key for table in LAYOUT.tables if table.since > NAMED] if whole.sections[COUNTS].any() else ()
    return StepSummary(whole.lacking(later), dict(parts.specs), parts.worst)


def _histograms(gap: str, counts: Mapping[str, Any]) -> dict[str, Array]:
    """[SIGNS, BINS] per quantity."""
    found = {quantity: np.zeros((len(SIGNS), BINS), np.int64) for quantity in QUANTITIES}
    for name, of_sign in counts.items():
        check_histogram(gap, name)
        quantity, _, sign = name.partition("/")
        found[quantity][SIGNS.index(sign)] = of_sign
    return found


def check_histogram(gap: str, name: str) -> None:
    """RecordError for a histogram that no summary has."""
    if gap not in GAPS or name not in HISTOGRAMS:
        raise RecordError(f"histograms/{gap}/{name}", "is no histogram of a gap")


def arrays_of(records: Mapping[str, Record], layout: Layout = LAYOUT) -> Arrays:
    """The arrays of records by path. A row that a record should have is absent; RecordError as `summary_of` has it."""
    tables: dict[str, dict[str, Any]] = {}
    absent: set[str] = set()
    for path, record in records.items():
        try:
            found = _bucket(path)
            if found is None:
                absent.update(_put(tables, layout, path, record))
            else:
                _put_bucket(tables, layout, *found, record)
        except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise RecordError(path, f"is no record of a summary: {error!r:.100}") from error
    return Arrays.of(layout, tables).lacking(absent)


def _bucket(path: str) -> tuple[str, int] | None:
    """The table that has a bucket's record in its arrays, and the index there; None for records of their own."""
    parts = path.split("/")
    if len(parts) != 4 or parts[0] != "breakdown" or parts[1] not in BUCKETS:
        return None
    return f"breakdown/{parts[1]}/{parts[3]}", BUCKETS[parts[1]].index(parts[2])


def _put_bucket(tables: dict[str, dict[str, Any]], layout: Layout, key: str, index: int, record: Record) -> None:
    table = layout.at(key)
    rows = tables.setdefault(key, {row.name: _zeros(row) for row in table.rows})
    for row in table.rows:
        rows[row.name][index] = _number(row, record[row.name])
    if len(record) != len(table.rows):
        raise KeyError(*(record.keys() - table.by_name.keys()))


def _put(tables: dict[str, dict[str, Any]], layout: Layout, path: str, record: Record) -> Iterator[str]:
    """Add a record's tables; yields the names of rows that it lacks."""
    parts = layout.parts(path)
    known = {row.name for table in parts for row in table.rows}
    if not known or ("" not in known and record.keys() - known):
        raise KeyError(*(record.keys() - known))
    for table in parts:
        if not table.part or record.keys() & table.by_name.keys():
            tables[table.key] = {row.name: _value(row, record) for row in table.rows}
            if any(record.values()) and not path.startswith(LEFT_OUT):
                yield from (name_of(path, row.name) for row in table.rows if row.name and row.name not in record)


def _value(row: Row, record: Record) -> Any:
    """One number, or all of an array from the entries by their indices."""
    if not row.shape:
        return _number(row, record[row.name]) if row.name in record else _NOTHING[row.merge]
    numbers = np.fromiter(map(int, record), np.int64, len(record))
    values = np.fromiter((_number(row, value) for value in record.values()), _DTYPES[row.kind], len(record))
    if SPARSE in row.shape:
        order = np.argsort(numbers)
        return numbers[order], values[order]
    array = _zeros(row)
    if len(numbers) and numbers.min() < 0:
        raise IndexError(numbers.min())
    array.reshape(-1)[numbers] = values
    return array


def _number(row: Row, value: float) -> float:
    """The value as its row has it; ValueError for a fraction of a count."""
    if row.kind != "count":
        return float(value)
    if int(value) != value:
        raise ValueError(f"{row.name} must be a whole number")
    return int(value)


def _zeros(row: Row) -> Array:
    return np.zeros([int(size) for size in row.shape], _DTYPES[row.kind])


_DTYPES: Final[Mapping[str, Any]] = {"count": np.int64, "number": np.float64, "magnitude": np.float64}
_NOTHING: Final = {"sum": 0, "deviation": 0, "min": np.inf, "max": -np.inf}
