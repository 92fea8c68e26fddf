"""Which rows apply to a batch, and what they decide about the blocks of it in order."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

from torch import Tensor

from offpolicy_monitor.core.corrections import Anchor, Decided, Placed, decide
from offpolicy_monitor.core.second_moment import beyond_second_moment
from offpolicy_monitor.measure.blocks import Block, DeviceBatch
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.methods.rule import Cut

#: A rule on staleness is anchored on pi_old, one on total on mu; rules on mismatch compare no current policy.
OTHER_ANCHOR: Final = {"staleness": "total", "total": "staleness"}


def applicable(rows: Sequence[MethodRow], batch: DeviceBatch) -> list[MethodRow]:
    """The rows whose gap, and whose advantages where the rule needs them, were sent."""
    return [row for row in rows if row.applies(batch.gaps, batch.advantages is not None)]


class Decider:
    """Runs rows on the blocks of one batch. What rows on the second moment cut is found once for all blocks."""

    def __init__(self, rows: Sequence[MethodRow], batch: DeviceBatch) -> None:
        self.rows = tuple(rows)
        self._batch = batch
        self._gaps = {gap: place for place, gap in enumerate(batch.gaps)}

    def decide(self, block: Block, rows: slice = slice(None), anchors: bool = False) -> Decided:
        """What the rows, or some of them, decide about a block; with `anchors` also by their other anchor."""
        placed = [self._own[number] for number in range(len(self.rows))[rows]]
        return decide(block.gaps, [*placed, *(self.others if anchors else ())], block.token_range.start)

    @cached_property
    def others(self) -> tuple[Placed, ...]:
        """Rows that have another anchor by it, and by their own where not all tokens are valid for both.

        Where all are, what a row decides by its own anchor is what it decides anyway.
        """
        joint, found = self._batch.joint, []
        for placed, row in zip(self._own, self.rows, strict=True):
            if joint and row.gap in OTHER_ANCHOR and not isinstance(row.rule, Cut):
                found.append(placed._replace(gap=joint[OTHER_ANCHOR[row.gap]], anchor=Anchor.THERE))
                if self._batch.finite is not None:
                    found.append(placed._replace(gap=joint[row.gap], anchor=Anchor.HERE))
        return tuple(found)

    @cached_property
    def _own(self) -> list[Placed]:
        return [
            Placed(row.rule, self._gaps[row.gap], self._cuts.get(number), number)
            for number, row in enumerate(self.rows)
        ]

    @cached_property
    def _cuts(self) -> Mapping[int, Tensor]:
        """By the number of a row on the second moment, which tokens of the whole batch it cuts: [T] bool."""
        found: dict[int, Tensor] = {}
        for gap in self._gaps:
            rows = {n: row.rule for n, row in enumerate(self.rows) if row.gap == gap and isinstance(row.rule, Cut)}
            if rows:
                d, valid = self._batch.log_ratio(gap)
                marks = beyond_second_moment(d.abs(), [rule.mean_square for rule in rows.values()], valid)
                found |= zip(rows, marks.unbind(), strict=True)
        return found
