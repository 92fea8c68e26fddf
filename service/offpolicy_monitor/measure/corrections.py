"""The part of a summary that every row has: what it would drop or reweight.

Tables: `methods/<row>`, in their parts.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import numpy as np
from torch import Tensor

from offpolicy_monitor.batch import Array
from offpolicy_monitor.core.corrections import Decided
from offpolicy_monitor.core.decision import DROP_SUMS, drop_sums, drop_terms, weight_sums
from offpolicy_monitor.core.gap import Gaps
from offpolicy_monitor.measure.blocks import DeviceBatch
from offpolicy_monitor.measure.totals import Sums
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.summary.method import DROP_COUNTS, SIDES, TABLES, WEIGHTS

Record = dict[str, float]
#: What the rows of a group decide about: its arrays are named by it.
_UNITS: Final = ("tokens", "whole")
_DROP_TERMS: Final = ("masked_tokens", "masked_low_tokens", "masked_sequences", "touched_sequences")
_COUNTS: Final = {row.name for table in TABLES for row in table.rows if row.kind == "count"}


def row_sums(gaps: Gaps, decided: Decided, dropped: Tensor | None) -> Sums:
    """|A| of gaps [G'], `drops/...` of the rows that drop, and `weights/...` of those that reweight; some by group.

    dropped: core.decision.dropped_in_sequences, None where no row drops.
    """
    sums, terms, most = dict[str, Tensor](), {"advantage_mass": gaps.sequence_mass}, dict[str, Tensor]()
    if dropped is not None:
        terms |= {f"drops/{name}": values for name, values in drop_terms(gaps, decided, dropped).items()}
    for group in decided.groups:
        unit = _UNITS[group.whole]
        if group.drops:
            sums[f"drops/{unit}"] = drop_sums(gaps, group)
        if group.clips:
            found, most[f"weights/{unit}/weight_max"] = weight_sums(gaps, group)
            weights = terms if group.whole else sums
            weights |= {f"weights/{unit}/{name}": values for name, values in found.items()}
    return Sums(sums, terms, {}, most)


class Structure(NamedTuple):
    """The numbers of the rows that drop and of those that reweight, in the order of their sums; of each block alike."""

    drops: tuple[int, ...]
    clips: tuple[int, ...]

    @classmethod
    def of(cls, decided: Decided) -> "Structure":
        """That of what was decided about one block."""
        return cls(*(tuple(placed.row for placed in rules) for rules in (decided.drops, decided.clips)))


def row_records(
    arrays: Mapping[str, Array], structure: Structure, rows: Sequence[MethodRow], batch: DeviceBatch
) -> dict[int, Record]:
    """What each row's sums are, by its number; the arrays are those of `row_sums` and of measure.gaps."""
    found: dict[int, Record] = {}
    for number in (*structure.drops, *structure.clips):
        gap = batch.gaps.index(rows[number].gap)
        whole = {name: arrays[f"gaps/{name}"][gap] for name in ("tokens", "sequences")}
        found[number] = {**whole, **_nothing_dropped(arrays, gap), "advantage_mass": arrays["advantage_mass"][gap]}
    for number, dropped in zip(structure.drops, _dropped(arrays) if structure.drops else (), strict=True):
        found[number] |= dropped
    for number, weights in zip(structure.clips, _weights(arrays) if structure.clips else (), strict=True):
        found[number] |= weights
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


def _dropped(arrays: Mapping[str, Array]) -> Iterator[Record]:
    """What each row that drops has dropped and kept, in the order of the groups."""
    sides = np.concatenate([arrays[name] for name in (f"drops/{unit}" for unit in _UNITS) if name in arrays])
    columns = {name: arrays[f"drops/{name}"] for name in _DROP_TERMS}
    columns |= {name: sides[:, side, index] for name, (side, index) in DROP_SUMS.items()}
    columns["masked_high_tokens"] = columns["masked_tokens"] - columns["masked_low_tokens"]
    return _by_row(columns)


def _weights(arrays: Mapping[str, Array]) -> Iterator[Record]:
    """The sums of what each row that reweights weighs tokens with."""
    found = [unit for unit in _UNITS if f"weights/{unit}/weight" in arrays]
    return _by_row(
        {name: np.concatenate([arrays[f"weights/{unit}/{name}"] for unit in found]) for name in WEIGHTS.names}
    )


def _by_row(columns: Mapping[str, Array]) -> Iterator[Record]:
    for values in zip(*(column.tolist() for column in columns.values()), strict=True):
        yield dict(zip(columns, values, strict=True))


def _nothing_dropped(arrays: Mapping[str, Array], gap: int) -> Record:
    kept = {"k3_kept": arrays["gaps/k3"][gap], "log_ratio_square_kept": arrays["gaps/log_ratio_square"][gap]}
    return dict.fromkeys((*_DROP_TERMS, *DROP_SUMS, "masked_high_tokens"), 0.0) | kept


def _present(record: Record, row: MethodRow, batch: DeviceBatch) -> Record:
    """Without the sides of a rule that has none, and without |A| where no advantages were sent."""
    left_out = set() if row.two_sided else set(SIDES.names)
    if batch.advantages is None:
        left_out |= {"advantage_mass", "masked_advantage_mass"}
    return {name: int(value) if name in _COUNTS else value for name, value in record.items() if name not in left_out}
