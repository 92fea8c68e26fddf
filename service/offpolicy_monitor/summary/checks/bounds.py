"""What a row's declaration says of its numbers: their kind, and how those of other rows bound them.

Knows no table by name. The fault is named by the row: `gaps/total/k3`.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from offpolicy_monitor.summary.arrays import Array, Arrays
from offpolicy_monitor.summary.checks.glance import Glance
from offpolicy_monitor.summary.faults import about_at_most, fits_mean, fits_squares, need, printable
from offpolicy_monitor.summary.remembered import remembering
from offpolicy_monitor.summary.rows import NAMED, SPARSE, Names, Row, Table, name_of
from offpolicy_monitor.summary.scheme import COUNTS, MAXIMA, MINIMA, MOST_WEIGHT, SUMS, Scheme, Span
from offpolicy_monitor.summary.sums import LARGEST_COUNT, LARGEST_NUMBER, LARGEST_SUM


def check_bounds(arrays: Arrays) -> None:
    """Raise InvalidSummaryError for a number of another kind than its row's, or that others do not allow."""
    _check_absent(arrays)
    check_kinds(arrays)
    scheme = arrays.scheme
    for part in dict.fromkeys((scheme.base, scheme)):
        for table, row in relations(part, arrays.absent).doubtful(arrays):
            check_row(arrays, table, row)


def check_row(arrays: Arrays, table: Table, row: Row) -> None:
    """Raise InvalidSummaryError where this row is none beside those that it names, or is no list of counts."""
    name = name_of(table.path, row.name)
    if SPARSE in row.shape:
        _check_sparse(arrays, name)
    found = _number_of(arrays, row, name)
    if found is None:
        return
    if row.total:
        _check_total(arrays, row, name, int(found.sum()))
    for of in row.at_most:
        _check_part(arrays, table, row, of, found)
    for beside in _beside(table, row):
        _check_beside(arrays, row, name, beside)


@remembering(lambda made, scheme, absent: scheme.weight, MOST_WEIGHT)
def relations(scheme: Scheme, absent: frozenset[str]) -> Glance[tuple[Table, Row]]:
    """What rows of the tables that the base lacks say of others; of a base, those of all its tables."""
    found = Glance[tuple[Table, Row]]()
    spans = {name: span for name, span in scheme.spans.items() if name not in absent}
    for table in map(scheme.tables.__getitem__, scheme.mine):
        for row in table.rows:
            own = spans.get(name_of(table.path, row.name))
            if SPARSE in row.shape:
                found.always((table, row))
            elif own is not None and row.others:
                _see(found, (table, row), own, spans)
    return found


def _see(found: Glance[tuple[Table, Row]], looked: tuple[Table, Row], own: Span, spans: Mapping[str, Span]) -> None:
    """Let the glance see what a row says of its own numbers."""
    table, row = looked
    for of in (*row.at_most, *filter(None, (row.total,))):
        whole = spans.get(_at(table, of))
        if whole is None:
            found.always(looked)
        elif "/" in of:
            found.sum_of(looked, own, whole, equal=of == row.total)
        else:
            found.each_of(looked, own, whole)
    for beside in _beside(table, row):
        known = [spans[name] for name in beside.names if name in spans]
        if len(known) == len(beside.names):
            (found.mean if beside.is_mean else found.squares)(looked, *known)


class _Beside(NamedTuple):
    """What a row says of several: their whole names as fits_mean takes them, or fits_squares, and what is else wrong.

    Where one of them is not there, as in a merge with an older summary, nothing is said.
    """

    is_mean: bool
    names: Names
    wrong: str


def _beside(table: Table, row: Row) -> Iterator[_Beside]:
    own = name_of(table.path, row.name)
    if row.extreme_of:
        count, total = row.extreme_of
        yield _Beside(True, (_at(table, count), _at(table, total), own), f"has the mean of {total} beyond it")
    if row.square_of:
        count, total = (_at(table, name) for name in row.square_of)
        yield _Beside(False, (count, total, own, count), f"is less than {row.square_of[1]} squared over their number")
    if row.product_of:
        count, first, second = (_at(table, name) for name in row.product_of)
        yield _Beside(False, (count, own, first, second), "is larger than the squares of its factors allow")


def _at(table: Table, name: str) -> str:
    """The whole name of a row that one of this table names."""
    return name if "/" in name else name_of(table.path, name)


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


def _number_of(arrays: Arrays, row: Row, name: str) -> Array | None:
    """The numbers of a row; None where it was not counted by all."""
    return arrays.at(name)[1] if SPARSE in row.shape else arrays.get(name)


def _check_total(arrays: Arrays, row: Row, name: str, found: int) -> None:
    whole = arrays.get(row.total)
    expected = None if whole is None else int(whole)
    need(found == expected, printable(name), f"counts {found}, where {printable(row.total)} is {expected}")


def _check_part(arrays: Arrays, table: Table, row: Row, of: str, found: Array) -> None:
    name, whole = printable(name_of(table.path, row.name)), arrays.get(_at(table, of))
    need(whole is not None, name, f"needs {printable(of)}")
    if whole is None:
        return
    parts = np.abs(found) if row.kind == "number" else found
    pairs = ((parts.sum(), whole),) if "/" in of else zip(parts.reshape(-1), whole.reshape(-1), strict=True)
    fits = all(about_at_most(part.item(), most.item()) for part, most in pairs)
    need(fits, name, f"is more than {printable(of)}")


def _check_beside(arrays: Arrays, row: Row, name: str, beside: _Beside) -> None:
    known = [found.astype(np.float64) for found in map(arrays.get, beside.names) if found is not None]
    if len(known) == len(beside.names):
        fits = fits_mean(*known, largest=row.merge == "max") if beside.is_mean else fits_squares(*known)
        need(bool(fits.all()), printable(name), beside.wrong)
