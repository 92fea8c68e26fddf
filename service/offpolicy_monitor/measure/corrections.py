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
from offpolicy_monitor.core.decision import DROP_SUMS, WEIGHT_SUMS, drop_sums, weight_sums
from offpolicy_monitor.core.gap import Gaps
from offpolicy_monitor.measure.blocks import DeviceBatch
from offpolicy_monitor.measure.totals import Sums
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.summary.method import DROP_COUNTS, SIDES, TABLES

Record = dict[str, float]
_NONE: Final[Array] = np.zeros((0, 0))
_COUNTS: Final = {row.name for table in TABLES for row in table.rows if row.kind == "count"}


def row_sums(gaps: Gaps, decided: Decided, dropped: Tensor | None) -> Sums:
    """[sums, rows] of rows that drop and of rows that reweight, and |A| [G'].

    dropped: core.decision.dropped_in_sequences, None where no row drops.
    """
    sums, most = {"advantage_mass": gaps.sequence_mass.sum(-1)}, {}
    if dropped is not None:
        sums["drops"] = drop_sums(gaps, decided, dropped)
    if decided.clips:
        sums["weights"], most["weights_max"] = weight_sums(gaps, decided)
    return Sums(sums, {}, most)


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
    for number, drops in zip(structure.drops, arrays.get("drops", _NONE).T.tolist(), strict=True):
        named = dict(zip(DROP_SUMS, drops, strict=True))
        found[number] |= named | {"masked_high_tokens": named["masked_tokens"] - named["masked_low_tokens"]}
    clipped = zip(structure.clips, arrays.get("weights", _NONE).T.tolist(), arrays.get("weights_max", ()), strict=True)
    for number, weights, most in clipped:
        found[number] |= {**dict(zip(WEIGHT_SUMS, weights, strict=True)), "weight_max": most}
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
    return dict.fromkeys((*DROP_SUMS, "masked_high_tokens"), 0.0) | kept


def _present(record: Record, row: MethodRow, batch: DeviceBatch) -> Record:
    """Without the sides of a rule that has none, and without |A| where no advantages were sent."""
    left_out = set() if row.two_sided else set(SIDES.names)
    if batch.advantages is None:
        left_out |= {"advantage_mass", "masked_advantage_mass"}
    return {name: int(value) if name in _COUNTS else value for name, value in record.items() if name not in left_out}
