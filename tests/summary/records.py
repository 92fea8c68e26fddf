"""The numbers of a summary by the names of their records, as tests compare them; what stored.named reads."""

from collections.abc import Iterator

import numpy as np
from offpolicy_monitor.summary.arrays import Arrays, filled
from offpolicy_monitor.summary.rows import name_of
from offpolicy_monitor.summary.scheme import COUNTS
from offpolicy_monitor.summary.stored.named import LEFT_OUT, Record
from offpolicy_monitor.summary.tables.buckets import BUCKETS


def records_of(arrays: Arrays) -> dict[str, Record]:
    """Records by path: what is zero is left out of arrays, a bucket of a breakdown has a record of its own."""
    found: dict[str, Record] = {}
    for path, tables in arrays.scheme.paths.items():
        parts = path.split("/")
        if parts[0] == "breakdown" and len(parts) == 3:
            found |= _buckets(arrays, path, parts[1], parts[2])
        elif parts[0] == "histograms":
            found |= {f"{path}/{row.name}": _entries(arrays[name_of(path, row.name)]) for row in tables[0].rows}
        elif path in arrays.scheme.sparse:
            found[path] = dict(zip(map(str, arrays.at(path)[0].tolist()), arrays.at(path)[1].tolist(), strict=True))
        elif not tables[0].rows[0].name:
            found[path] = _entries(arrays[path])
        else:
            record = arrays.record(path)
            found[path] = {k: v for k, v in record.items() if v} if path.startswith(LEFT_OUT) else record
    return found


def is_count(arrays: Arrays, path: str, name: str) -> bool:
    """Whether a number of a record is a count."""
    spans = arrays.scheme.spans
    span = spans.get(name_of(path, name)) or spans.get(path)
    return span is None or span.section == COUNTS


def _buckets(arrays: Arrays, path: str, dimension: str, part: str) -> Iterator[tuple[str, Record]]:
    columns = arrays.columns(path)
    for index in np.flatnonzero(columns["tokens"]).tolist():
        bucket = BUCKETS[dimension][index]
        yield (
            f"breakdown/{dimension}/{bucket}/{part}",
            {name: column[index].item() for name, column in columns.items()},
        )


def _entries(array: np.ndarray) -> Record:
    return {str(index): value for index, value in filled(array).items()}
