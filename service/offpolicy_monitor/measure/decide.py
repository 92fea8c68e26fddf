"""Which rows apply to a batch, and what they decide about the blocks of it in order."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Final, NamedTuple

import torch
from torch import Tensor

from offpolicy_monitor.core.corrections import Group, Placed, decide_sequences, decide_tokens, decides_tokens
from offpolicy_monitor.core.decision import differing
from offpolicy_monitor.core.gap import Gaps, chosen
from offpolicy_monitor.measure.blocks import Block, DeviceBatch
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.methods.rule import Cut

#: A rule on staleness is anchored on pi_old, one on total on mu; rules on mismatch compare no current policy.
OTHER_ANCHOR: Final = {"staleness": "total", "total": "staleness"}


def applicable(rows: Sequence[MethodRow], batch: DeviceBatch) -> list[MethodRow]:
    """The rows whose gap, and whose advantages where the rule needs them, were sent."""
    return [row for row in rows if row.gap in batch.gaps and (batch.advantages is not None or not row.needs_advantages)]


#: By what rows decide about, the numbers of the rows of a group, and how many of them drop.
Structure = Mapping[str, tuple[tuple[int, ...], int]]


class Decided(NamedTuple):
    """What rows decide about a block: those that decide about tokens, and about whole sequences; None without any."""

    tokens: Group | None
    whole: Group | None

    @property
    def groups(self) -> tuple[tuple[str, Group], ...]:
        """Those that are there, by what they decide about."""
        found = (("tokens", self.tokens), ("sequences", self.whole))
        return tuple((name, group) for name, group in found if group is not None)

    @property
    def structure(self) -> Structure:
        """Which rows they are, without what they decide: the same for every block of a batch."""
        return {name: (group.rows, group.drops) for name, group in self.groups}


class Decider:
    """Runs rows on the blocks of one batch. What a row on the second moment cuts is found once for all blocks."""

    def __init__(self, rows: Sequence[MethodRow], batch: DeviceBatch) -> None:
        self.rows = tuple(rows)
        self._batch = batch
        self._gaps = {gap: place for place, gap in enumerate(batch.gaps)}
        self._placed: dict[int, Placed] = {}

    def decide(self, block: Block, rows: slice = slice(None)) -> Decided:
        """What the rows, or some of them, decide about a block."""
        placed = [self._place(number) for number in range(len(self.rows))[rows]]
        return _decided(block.gaps, placed, block.token_range.start)

    @cached_property
    def _anchored(self) -> list[int]:
        """The rows that have another anchor."""
        if not self._batch.joint:
            return []
        return [
            place for place, row in enumerate(self.rows) if row.gap in OTHER_ANCHOR and not isinstance(row.rule, Cut)
        ]

    def anchored(self, block: Block, own: Decided) -> tuple[tuple[int, ...], Tensor] | None:
        """Rows that have another anchor, and on how many of the jointly valid tokens each decides otherwise by it.

        `own` is what all rows decide about the block: where every token is valid, it is what they decide on these too.
        """
        if not self._anchored:
            return None
        joint, gaps, start = self._batch.joint, block.gaps, block.token_range.start
        placed = [(self._place(number), self.rows[number].gap) for number in self._anchored]
        there = _decided(gaps, [row._replace(gap=joint[OTHER_ANCHOR[gap]]) for row, gap in placed], start)
        here = own
        if gaps.valid is not None:
            here = _decided(gaps, [row._replace(gap=joint[gap]) for row, gap in placed], start)
        rows, counts = zip(*(_differing(gaps, name, here, other) for name, other in there.groups), strict=True)
        return tuple(chain.from_iterable(rows)), torch.cat(counts)

    def _place(self, number: int) -> Placed:
        if number not in self._placed:
            row = self.rows[number]
            found = self._batch.moments(row.gap).cut(row.rule.mean_square) if isinstance(row.rule, Cut) else None
            self._placed[number] = Placed(row.rule, self._gaps[row.gap], found, number)
        return self._placed[number]


def _decided(gaps: Gaps, rules: Sequence[Placed], start: int) -> Decided:
    of_tokens = [placed for placed in rules if decides_tokens(placed, gaps)]
    whole = [placed for placed in rules if not decides_tokens(placed, gaps)]
    return Decided(decide_tokens(gaps, of_tokens, start), decide_sequences(gaps, whole))


def _differing(gaps: Gaps, name: str, here: Decided, there: Group) -> tuple[tuple[int, ...], Tensor]:
    mine = dict(here.groups)[name]
    own = chosen(mine.marked, [mine.rows.index(row) for row in there.rows])
    return there.rows, differing(gaps, own, there.marked, name == "sequences", there.gaps)
