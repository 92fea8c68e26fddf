"""Which rows apply to a batch, and what each decides about the blocks of it in order."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from offpolicy_monitor.core import rules
from offpolicy_monitor.core.decision import Decision, TokenDrops
from offpolicy_monitor.core.gap import GapTokens
from offpolicy_monitor.core.select import no_places
from offpolicy_monitor.measure.blocks import DeviceBatch
from offpolicy_monitor.methods import MethodRow

#: For each request-wide row, by its place in the rows: the [n] 0/1 cut over the gap's valid tokens, None if all stay.
Cuts = Mapping[int, Tensor | None]


def applicable(rows: Sequence[MethodRow], batch: DeviceBatch) -> list[MethodRow]:
    """The rows whose gap, and whose advantages where the rule needs them, were sent."""
    return [row for row in rows if row.gap in batch.gaps and (batch.advantages is not None or not row.method.signed)]


def request_cuts(rows: Sequence[MethodRow], batch: DeviceBatch) -> Cuts:
    """Decide the request-wide rules over all tokens of the batch at once."""
    cuts: dict[int, Tensor | None] = {}
    for place, row in enumerate(rows):
        if row.method.request_wide:
            valid = batch.whole().valid(row.gap)
            if valid is not None:
                log_ratio = valid.gap.numerator - valid.gap.denominator
                cuts[place] = rules.second_moment_cut(log_ratio, **row.parameters)
    return cuts


class Decider:
    """Runs rows on the blocks of one batch in order, handing request-wide rules their part of the cut."""

    def __init__(self, rows: Sequence[MethodRow], batch: DeviceBatch) -> None:
        self.rows = rows
        self._cuts = request_cuts(rows, batch)
        self._seen: dict[int, int] = dict.fromkeys(self._cuts, 0)

    def decide(self, place: int, gap: GapTokens) -> Decision:
        """The decision of the row at `place` on the valid tokens of its gap in the next block."""
        row = self.rows[place]
        if not row.method.request_wide:
            return row.method.rule(gap, **row.arguments)
        cut, start = self._cuts[place], self._seen[place]
        self._seen[place] = start + gap.segments.tokens
        if cut is None:
            return TokenDrops(no_places(gap.numerator), no_places(gap.numerator))
        return row.method.rule(gap, cut=cut[start : self._seen[place]])
