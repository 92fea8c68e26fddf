"""Which rows apply to a batch, and what they decide about the blocks of it in order."""

from collections.abc import Callable, Sequence
from functools import cached_property

from offpolicy_monitor.core.corrections import Anchor, Decided, Placed, decide
from offpolicy_monitor.core.outward import moves_outward
from offpolicy_monitor.core.second_moment import Beyond, beyond_second_moment
from offpolicy_monitor.measure.blocks import Block, DeviceBatch
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.methods.curve import OUTWARD_SCORES
from offpolicy_monitor.methods.rule import Cut


def applicable(rows: Sequence[MethodRow], batch: DeviceBatch) -> list[MethodRow]:
    """The rows whose gap, and whose advantages where the rule needs them, were sent."""
    return [row for row in rows if row.applies(batch.gaps, batch.advantages is not None)]


class Decider:
    """Runs rows on the blocks of one batch. Where a row on the second moment cuts is found once for all blocks.

    That is found when the row first decides, so that no row waits for all of them.
    """

    def __init__(self, rows: Sequence[MethodRow], batch: DeviceBatch) -> None:
        self.rows = tuple(rows)
        self._batch = batch
        self._gaps = {gap: index for index, gap in enumerate(batch.gaps)}
        self._placed: dict[int, Placed] = {}
        self._beyond: dict[tuple[str, str], Callable[[float], Beyond]] = {}

    def decide(self, block: Block, rows: slice = slice(None), anchors: bool = False) -> Decided:
        """What the rows, or some of them, decide about a block; with `anchors` also by their other anchor."""
        numbers = range(len(self.rows))[rows]
        placed = [self._own(number) for number in numbers]
        weighed = [self._weighed(number) for number in numbers if self.weighs(number)]
        return decide(block.gaps, [*placed, *weighed, *(self.others if anchors else ())], block.token_range.start)

    def weighs(self, number: int) -> bool:
        """Whether a row weighs what it keeps beside dropping the rest: then it is looked at twice."""
        row = self.rows[number]
        return row.weight is not None and row.weight is not row.rule

    @cached_property
    def others(self) -> tuple[Placed, ...]:
        """Rows that have another anchor by it, and by their own where not all tokens are valid for both.

        Where all are, what a row decides by its own anchor is what it decides anyway.
        """
        joint, found = self._batch.joint, []
        for number, row in enumerate(self.rows):
            if joint and row.other_anchor is not None:
                placed = self._own(number)
                found.append(placed._replace(gap=joint[row.other_anchor], anchor=Anchor.THERE))
                if self._batch.finite is not None:
                    found.append(placed._replace(gap=joint[row.gap], anchor=Anchor.HERE))
        return tuple(found)

    def _weighed(self, number: int) -> Placed:
        weight = self.rows[number].weight
        assert weight is not None
        return self._own(number)._replace(rule=weight)

    def _own(self, number: int) -> Placed:
        if number not in self._placed:
            row = self.rows[number]
            cut = self._beyond_of(row.gap, row.rule.score)(row.rule.mean_square) if isinstance(row.rule, Cut) else None
            self._placed[number] = Placed(row.rule, self._gaps[row.gap], cut, number)
        return self._placed[number]

    def _beyond_of(self, gap: str, score: str) -> Callable[[float], Beyond]:
        if (gap, score) not in self._beyond:
            d, valid = self._batch.log_ratio(gap)
            if score in OUTWARD_SCORES:
                outward = moves_outward(d, self._batch.whole_advantages)
                valid = outward if valid is None else outward & valid
            self._beyond[gap, score] = beyond_second_moment(d.abs(), valid)
        return self._beyond[gap, score]
