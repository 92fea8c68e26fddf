"""Which rows apply to a batch, and what each decides about the blocks of it in order."""

from collections.abc import Sequence

from offpolicy_monitor.core.corrections import decide
from offpolicy_monitor.core.decision import Decision, TokenDrops
from offpolicy_monitor.core.gap import GapTokens
from offpolicy_monitor.core.second_moment import SecondMoments
from offpolicy_monitor.core.select import no_places, places_above
from offpolicy_monitor.measure.blocks import DeviceBatch
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.methods.rule import Cut


def applicable(rows: Sequence[MethodRow], batch: DeviceBatch) -> list[MethodRow]:
    """The rows whose gap, and whose advantages where the rule needs them, were sent."""
    return [row for row in rows if row.gap in batch.gaps and (batch.advantages is not None or not row.needs_advantages)]


class Decider:
    """Runs rows on the blocks of one batch in order; a Cut is found from all of the batch at once.

    What a Cut keeps is one number beside an order that all such rows of a gap share.
    """

    def __init__(self, rows: Sequence[MethodRow], batch: DeviceBatch) -> None:
        self.rows = rows
        self._batch = batch
        self._orders: dict[str, SecondMoments] = {}
        self._kept: dict[int, int] = {}
        self._seen: dict[int, int] = {}

    def decide(self, place: int, gap: GapTokens) -> Decision:
        """The decision of the row at `place` on the valid tokens of its gap in the next block."""
        row = self.rows[place]
        if isinstance(row.rule, Cut):
            return self._cut(place, row.gap, row.rule, gap)
        return decide(gap, row.rule)

    def _cut(self, place: int, name: str, rule: Cut, gap: GapTokens) -> TokenDrops:
        order, nothing = self._order(name), no_places(gap.numerator)
        if place not in self._kept:
            self._kept[place] = order.kept(rule.mean_square)
        kept, start = self._kept[place], self._seen.get(place, 0)
        self._seen[place] = start + gap.segments.tokens
        if kept == len(order.ranks):
            return TokenDrops(nothing, nothing)
        return TokenDrops(places_above(order.ranks[start : self._seen[place]].double(), kept - 0.5), nothing)

    def _order(self, gap: str) -> SecondMoments:
        """The order of all valid tokens of a gap, which is asked for only where it has some."""
        if gap not in self._orders:
            valid = self._batch.whole().valid(gap)
            assert valid is not None
            self._orders[gap] = SecondMoments(valid.gap.numerator - valid.gap.denominator)
        return self._orders[gap]
