"""What a row's declaration says of its numbers: their kind, the whole of which they are a part, what they add up to.

Knows no table by name. The fault is named by the row: `gaps/total/k3`.
"""

import numpy as np

from offpolicy_monitor.summary.arrays import Array, Arrays
from offpolicy_monitor.summary.checks.glance import Glance
from offpolicy_monitor.summary.faults import about_at_most, need, printable
from offpolicy_monitor.summary.remembered import remembering
from offpolicy_monitor.summary.rows import NAMED, SPARSE, Row, Table, name_of
from offpolicy_monitor.summary.scheme import COUNTS, MAXIMA, MINIMA, MOST_WEIGHT, SUMS, Scheme
from offpolicy_monitor.summary.sums import LARGEST_COUNT, LARGEST_NUMBER, LARGEST_SUM


def check_bounds(arrays: Arrays) -> None:
    """Raise InvalidSummaryError for a number of another kind than its row's, or a part that is more than its whole."""
    _check_absent(arrays)
    check_kinds(arrays)
    scheme = arrays.scheme
    for part in dict.fromkeys((scheme.base, scheme)):
        for table, row in relations(part, arrays.absent).doubtful(arrays):
            check_row(arrays, table, row)


def check_row(arrays: Arrays, table: Table, row: Row) -> None:
    """Raise InvalidSummaryError where this row has more than its whole, or is no list of counts."""
    if SPARSE in row.shape:
        _check_sparse(arrays, name_of(table.path, row.name))
    if row.at_most or row.total:
        _check_whole(arrays, table, row)


@remembering(lambda made, scheme, absent: scheme.weight, MOST_WEIGHT)
def relations(scheme: Scheme, absent: frozenset[str]) -> Glance[tuple[Table, Row]]:
    """What rows of the tables that the base lacks say of others; of a base, those of all its tables."""
    found = Glance[tuple[Table, Row]]()
    spans = {name: span for name, span in scheme.spans.items() if name not in absent}
    for table in map(scheme.tables.__getitem__, scheme.mine):
        for row in (row for row in table.rows if row.at_most or row.total or SPARSE in row.shape):
            name, (_, slash, of) = name_of(table.path, row.name), row.at_most.rpartition("/")
            part, whole = spans.get(name), spans.get(row.total or (row.at_most if slash else name_of(table.path, of)))
            if part is not None and whole is not None:
                if row.total or slash:
                    found.sum_of((table, row), part, whole, equal=bool(row.total))
                else:
                    found.each_of((table, row), part, whole)
            elif part is not None or SPARSE in row.shape:
                found.always((table, row))
    return found


def _check_absent(arrays: Arrays) -> None:
    """What is absent came after the versions that all releases write: a table, or a row of a table that is there."""
    later = {table.key for table in arrays.scheme.layout.tables if table.since > NAMED} if arrays.absent else set()
    for name in arrays.absent - later:
        row = _row(arrays.scheme, name)
        need(row is not None and row.since > NAMED, printable(name), "required")


def _row(scheme: Scheme, name: str) -> Row | None:
    """The row of this whole name in one of the tables that are there."""
    key = scheme.key_of(name)
    return None if key is None else scheme.tables[key].by_name[scheme.block(key).rows[name].row]


def check_kinds(arrays: Arrays) -> None:
    """Raise InvalidSummaryError for a number of another kind than its row's."""
    scheme, (where, counts), sums = arrays.scheme, arrays.filled, arrays.section(SUMS)
    outside = (counts < 0) | (counts > LARGEST_COUNT)
    if outside.any():
        wrong = np.zeros(scheme.sizes[COUNTS], bool)
        wrong[where[outside]] = True
        _fail(arrays, COUNTS, wrong, "must be a whole number from 0 on")
    for part in dict.fromkeys((scheme.base, scheme)):
        begin, low, high = _limits(part)
        inside = (sums[begin : begin + len(low)] >= low) & (sums[begin : begin + len(low)] <= high)  # NaN is in neither
        if not inside.all():
            wrong = np.zeros(scheme.sizes[SUMS], bool)
            wrong[begin : begin + len(low)] = ~inside
            _fail(arrays, SUMS, wrong, "must be a finite fraction within its bounds, and not negative where it counts")
    for section, nothing in ((MINIMA, np.inf), (MAXIMA, -np.inf)):
        extremes = arrays.section(section)
        fits = (np.abs(extremes) <= LARGEST_NUMBER) | (extremes == nothing)
        _fail(arrays, section, ~fits, "must be a finite fraction")


@remembering(lambda made, scheme: scheme.weight, MOST_WEIGHT)
def _limits(scheme: Scheme) -> tuple[int, Array, Array]:
    """Where sums of the tables that the base lacks begin, of a base all; the least and the largest of each."""
    begin = 0 if scheme.base is scheme else scheme.base.sizes[SUMS]
    low = np.zeros(scheme.sizes[SUMS] - begin)
    high = np.zeros(len(low))
    for table in map(scheme.tables.__getitem__, scheme.mine):
        for row in table.rows:
            span = scheme.spans.get(name_of(table.path, row.name))
            if span is not None and span.section == SUMS:
                largest = LARGEST_SUM if row.product else LARGEST_NUMBER
                low[span.start - begin : span.stop - begin] = 0 if row.kind == "magnitude" else -largest
                high[span.start - begin : span.stop - begin] = largest
    return begin, low, high


def _fail(arrays: Arrays, section: int, wrong: Array, message: str) -> None:
    """Name the first row with a wrong entry."""
    for name, span in arrays.scheme.spans.items() if wrong.any() else ():
        need(span.section != section or not wrong[span.start : span.stop].any(), printable(name), message)


def _check_sparse(arrays: Arrays, name: str) -> None:
    numbers, counts = arrays.at(name)
    ascending = len(numbers) == len(counts) and bool((np.diff(numbers) > 0).all())
    need(ascending, name, "must be whole numbers in order, each with a count")
    need(bool(((counts > 0) & (counts <= LARGEST_COUNT)).all()), name, "must count from 1 on")


def _check_whole(arrays: Arrays, table: Table, row: Row) -> None:
    name = name_of(table.path, row.name)
    if SPARSE in row.shape:
        found = int(arrays.at(name)[1].sum())
        if row.total:
            _check_total(arrays, row, name, found)
        else:
            part_of = arrays.get(row.at_most)
            need(part_of is not None and found <= int(part_of), printable(name), f"is more than {row.at_most}")
        return
    values = arrays.get(name)
    if values is None:
        return
    if row.total:
        _check_total(arrays, row, name, int(values.sum()))
        return
    _, slash, of = row.at_most.rpartition("/")
    whole = arrays.get(row.at_most if slash else name_of(table.path, of))
    need(whole is not None, printable(name), f"needs {printable(row.at_most)}")
    if whole is None:
        return
    pairs = ((values.sum(), whole),) if slash else zip(values.reshape(-1), whole.reshape(-1), strict=True)
    fits = all(about_at_most(part.item(), most.item()) for part, most in pairs)
    need(fits, printable(name), f"is more than {printable(row.at_most)}")


def _check_total(arrays: Arrays, row: Row, name: str, found: int) -> None:
    whole = arrays.get(row.total)
    expected = None if whole is None else int(whole)
    need(found == expected, printable(name), f"counts {found}, where {printable(row.total)} is {expected}")
