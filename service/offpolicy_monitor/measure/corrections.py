"""The part of a summary that every row has: what it would drop or reweight.

Tables: `methods/<row>`, in their parts.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from torch import Tensor

from offpolicy_monitor.batch import Array
from offpolicy_monitor.core.decision import DROP_SUMS, WEIGHT_SUMS, drop_sums, weight_sums
from offpolicy_monitor.core.gap import Gaps
from offpolicy_monitor.measure.blocks import DeviceBatch
from offpolicy_monitor.measure.decide import Decided, Structure
from offpolicy_monitor.measure.totals import Sums
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.summary.method import DROP_COUNTS, SIDES, TABLES

Record = dict[str, float]
_COUNTS: Final = {row.name for table in TABLES for row in table.rows if row.kind == "count"}


def row_sums(gaps: Gaps, decided: Decided, masked: Mapping[str, Tensor]) -> Sums:
    """[sums, rows] of rows that drop and of rows that reweight, by what they decide about, and |A| [G'].

    masked: by what rows decide about, dropped tokens of sequences (core.decision.masked_in_sequences).
    """
    sums, most = {"advantage_mass": gaps.sequence_mass.sum(-1)}, {}
    for name, group in decided.groups:
        whole = name == "sequences"
        if group.drops:
            sums[f"drops/{name}"] = drop_sums(gaps, group, masked[name], whole)
        if group.drops < len(group.rules):
            sums[f"weights/{name}"], most[f"weights_max/{name}"] = weight_sums(gaps, group, whole)
    return Sums(sums, {}, most)


def row_records(
    arrays: Mapping[str, Array], structure: Structure, rows: Sequence[MethodRow], batch: DeviceBatch
) -> dict[int, Record]:
    """What each row's sums are, by its number; the arrays are those of `row_sums` and of measure.gaps."""
    found: dict[int, Record] = {}
    for name, (numbers, drops) in structure.items():
        for place, number in enumerate(numbers):
            gap = batch.gaps.index(rows[number].gap)
            record = {unit: arrays[f"gaps/{unit}"][gap] for unit in ("tokens", "sequences")}
            if place < drops:
                record |= zip(DROP_SUMS, arrays[f"drops/{name}"][:, place].tolist(), strict=True)
            else:
                weights = arrays[f"weights/{name}"][:, place - drops].tolist()
                record |= _nothing_dropped(arrays, gap) | dict(zip(WEIGHT_SUMS, weights, strict=True))
                record["weight_max"] = arrays[f"weights_max/{name}"][place - drops]
            found[number] = {**record, "advantage_mass": arrays["advantage_mass"][gap]}
    return {number: _present(found[number], rows[number], batch) for number in sorted(found)}


def row_tables(records: Mapping[int, Record], rows: Sequence[MethodRow]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables of the rows' records."""
    for number, record in records.items():
        name = quote(rows[number].name, safe="")
        for table in TABLES:
            if table.names <= record.keys():
                yield table.key.replace("{row}", name), {row: record[row] for row in table.names}


def no_drops(row: MethodRow) -> Record:
    """A row's sums before any token: its counts are 0."""
    return {name: 0 for name in DROP_COUNTS if row.two_sided or name not in SIDES.names}


def _nothing_dropped(arrays: Mapping[str, Array], gap: int) -> Record:
    kept = {"k3_kept": arrays["gaps/k3"][gap], "log_ratio_square_kept": arrays["gaps/log_ratio_square"][gap]}
    return dict.fromkeys(DROP_SUMS, 0.0) | kept


def _present(record: Record, row: MethodRow, batch: DeviceBatch) -> Record:
    """Without the sides of a rule that has none, and without |A| where no advantages were sent."""
    left_out = set() if row.two_sided else set(SIDES.names)
    if batch.advantages is None:
        left_out |= {"advantage_mass", "masked_advantage_mass"}
    return {name: int(value) if name in _COUNTS else value for name, value in record.items() if name not in left_out}
