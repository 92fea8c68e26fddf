"""Named records: a summary as it was spelled before it was arrays, each number by its name.

Stored versions 1 and 2 are read through here, and whoever makes records by name. A table's name is its path; the
entries of an array are named by their places, those of a breakdown by their buckets, one record a bucket.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from offpolicy_monitor.summary.arrays import Arrays, merged
from offpolicy_monitor.summary.gap import QUANTITIES, SIGNS, GapSummary
from offpolicy_monitor.summary.histogram import BINS, Histogram
from offpolicy_monitor.summary.layout import GAPS, LAYOUT, Layout
from offpolicy_monitor.summary.method import DROP_COUNTS, MethodSummary
from offpolicy_monitor.summary.rows import SPARSE, Row, Table, name_of
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.tables.buckets import BUCKETS
from offpolicy_monitor.summary.tables.worst import Worst

Record = Mapping[str, float]

#: Tables that left out what was zero.
LEFT_OUT: Final = "signature/grid/"


def arrays_of(records: Mapping[str, Record], layout: Layout = LAYOUT) -> Arrays:
    """The arrays of records by path. A row that a record should have is absent; KeyError for what is not declared."""
    tables: dict[str, dict[str, Any]] = {}
    absent: set[str] = set()
    for path, record in records.items():
        place = _bucket(path)
        if place is not None:
            _put_bucket(tables, layout, *place, record)
        else:
            absent.update(_put(tables, layout, path, record))
    return Arrays.of(tables, layout).lacking(absent)


def _bucket(path: str) -> tuple[str, int] | None:
    """The table that has a bucket's record in its arrays, and the place there; None for records of their own."""
    parts = path.split("/")
    if len(parts) != 4 or parts[0] != "breakdown" or parts[1] not in BUCKETS:
        return None
    return f"breakdown/{parts[1]}/{parts[3]}", _place(BUCKETS[parts[1]], parts[2], path)


def _place(buckets: tuple[str, ...], bucket: str, path: str) -> int:
    if bucket not in buckets:
        raise KeyError(path)
    return buckets.index(bucket)


def _put_bucket(tables: dict[str, dict[str, Any]], layout: Layout, key: str, place: int, record: Record) -> None:
    table = layout.at(key)
    rows = tables.setdefault(key, {row.name: _zeros(row) for row in table.rows})
    for name, value in record.items():
        rows[name][place] = value


def _put(tables: dict[str, dict[str, Any]], layout: Layout, path: str, record: Record) -> Iterator[str]:
    """Add a record's tables; yields the names of rows that it lacks."""
    parts = layout.parts(path)
    if not parts:
        raise KeyError(path)
    known = {row.name for table in parts for row in table.rows}
    if "" not in known and (unknown := record.keys() - known):
        raise KeyError(f"{path}: {', '.join(sorted(unknown))}")
    for table in parts:
        if not table.part or record.keys() & table.by_name.keys():
            tables[table.key] = {row.name: _value(row, record) for row in table.rows}
            if any(record.values()) and not path.startswith(LEFT_OUT):
                yield from (name_of(path, row.name) for row in table.rows if row.name and row.name not in record)


def _value(row: Row, record: Record) -> Any:
    """One number, or all of an array from the entries by their places."""
    if not row.shape:
        return record.get(row.name, _NOTHING[row.merge])
    numbers = np.fromiter(map(int, record), np.int64, len(record))
    values = np.fromiter(record.values(), np.int64 if row.kind == "count" else np.float64, len(record))
    if SPARSE in row.shape:
        order = np.argsort(numbers)
        return numbers[order], values[order]
    array = _zeros(row)
    if len(numbers) and numbers.min() < 0:
        raise KeyError(f"{numbers.min()}")
    array.reshape(-1)[numbers] = values
    return array


def _zeros(row: Row) -> Any:
    return np.zeros([int(size) for size in row.shape], np.int64 if row.kind == "count" else np.float64)


_NOTHING: Final = {"sum": 0, "deviation": 0, "min": np.inf, "max": -np.inf}


def records_of(arrays: Arrays) -> dict[str, Record]:
    """The records of arrays by path, what is zero left out of arrays; the inverse of `arrays_of`."""
    found: dict[str, Record] = {}
    for path, tables in arrays.scheme.paths.items():
        parts = path.split("/")
        if parts[0] == "histograms":
            continue
        if parts[0] == "breakdown" and len(parts) == 3:
            found |= _buckets(arrays, parts[1], parts[2], tables[0])
        elif not tables[0].rows[0].name:
            found[path] = _entries(arrays, path)
        else:
            record = arrays.record(path)
            found[path] = {k: v for k, v in record.items() if v} if path.startswith(LEFT_OUT) else record
    return found


def _buckets(arrays: Arrays, dimension: str, part: str, table: Table) -> Iterator[tuple[str, Record]]:
    columns = {row.name: arrays[name_of(table.path, row.name)].tolist() for row in table.rows}
    for place, bucket in enumerate(BUCKETS[dimension]):
        if columns["tokens"][place]:
            yield f"breakdown/{dimension}/{bucket}/{part}", {name: column[place] for name, column in columns.items()}


def _entries(arrays: Arrays, path: str) -> Record:
    if path in arrays.scheme.sparse:
        return {str(number): value for number, value in zip(*(part.tolist() for part in arrays.at(path)), strict=True)}
    flat = arrays[path].reshape(-1)
    places = np.flatnonzero(flat)
    return dict(zip(map(str, places.tolist()), flat[places].tolist(), strict=True))


def from_step(summary: StepSummary) -> Arrays:
    """The arrays of a summary; its worst sequences and the specs of its methods are no arrays."""
    records: dict[str, Record] = {"batch": summary.batch, **({"cross": summary.cross} if summary.cross else {})}
    records |= {f"gaps/{name}": gap.sums for name, gap in summary.gaps.items()}
    records |= {f"methods/{quote(name, safe='')}": method.sums for name, method in summary.methods.items()}
    arrays = arrays_of({**records, **summary.tables})
    return merged([arrays, Arrays.of({f"histograms/{name}": _histograms(gap) for name, gap in summary.gaps.items()})])


def to_step(arrays: Arrays, specs: Mapping[str, Mapping[str, Any] | None], worst: Worst) -> StepSummary:
    """The summary of arrays; `specs` by the names of methods."""
    records = records_of(arrays)
    gaps = {
        name: GapSummary(_if_any(records.pop(f"gaps/{name}")), _by_sign(arrays, f"histograms/{name}"))
        for name in GAPS
        if f"gaps/{name}" in arrays
    }
    methods = {
        name: MethodSummary(spec, _if_counted(records.pop(f"methods/{quote(name, safe='')}")))
        for name, spec in specs.items()
    }
    return StepSummary(records.pop("batch", {}), gaps, methods, records.pop("cross", {}), records, worst)


def _histograms(gap: GapSummary) -> dict[str, Any]:
    """[signs, bins] a quantity."""
    found = {quantity: np.zeros((len(SIGNS), BINS), np.int64) for quantity in QUANTITIES}
    for name, histogram in gap.histograms.items():
        quantity, sign = name.split("/")
        found[quantity][SIGNS.index(sign)] = histogram.counts
    return found


def _by_sign(arrays: Arrays, path: str) -> dict[str, Histogram]:
    return {
        f"{quantity}/{sign}": Histogram(counts)
        for quantity in QUANTITIES
        for sign, counts in zip(SIGNS, arrays[f"{path}/{quantity}"], strict=True)
        if counts.any()
    }


def _if_any(record: Record) -> Record:
    """A gap without tokens has no sums."""
    return record if record["tokens"] else {}


def _if_counted(record: Record) -> Record:
    """A method that saw no token has counts of drops alone, which are 0."""
    return record if record["tokens"] else {name: record[name] for name in DROP_COUNTS if name in record}
