"""BlockView: what the parts of a summary are made from: a block's gaps, what rows decide about them, and where it is
from.

What several parts need is computed once, and only when asked for. Shapes: G gaps of the batch (the stacked gaps beyond
them are over jointly valid tokens), T tokens, N sequences of the block.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from offpolicy_monitor.batch import Origin
from offpolicy_monitor.core.decision import masked_in_sequences
from offpolicy_monitor.core.gap import Gaps
from offpolicy_monitor.core.routing import RoutingSums
from offpolicy_monitor.measure.bins import histogram_bins
from offpolicy_monitor.measure.blocks import Block
from offpolicy_monitor.measure.decide import Decided, Decider


@dataclass(frozen=True, eq=False)
class BlockView:
    """A block, the rows of its batch, the origin of it, and what answers by gap how the experts of its batch differ."""

    block: Block
    decider: Decider
    origin: Origin
    routed: Callable[[], Mapping[str, RoutingSums]] = dict

    @property
    def gaps(self) -> Gaps:
        """The stacked gaps."""
        return self.block.gaps

    @property
    def number(self) -> int:
        """G."""
        return len(self.block.batch.gaps)

    @cached_property
    def decided(self) -> Decided:
        """What the rows decide."""
        return self.decider.decide(self.block)

    @cached_property
    def masked(self) -> dict[str, Tensor]:
        """By what rows decide about: what they drop of each sequence, [drops, N] float64."""
        return {name: masked_in_sequences(self.gaps, group, name == "sequences") for name, group in self.decided.groups}

    @cached_property
    def anchored(self) -> tuple[tuple[int, ...], Tensor] | None:
        """Rows that have another anchor, and on how many tokens each decides otherwise by it."""
        return self.decider.anchored(self.block, self.decided)

    def own(self, stacked: Tensor) -> Tensor:
        """The batch's gaps of all that are stacked: [G', ...] -> [G, ...]."""
        return stacked if len(stacked) == self.number else stacked[: self.number]

    @cached_property
    def valid(self) -> Tensor | None:
        """[G, T] float64: 1 for valid tokens; None where all are."""
        return None if self.gaps.valid is None else self.own(self.gaps.valid).double()

    @cached_property
    def filled(self) -> Tensor | None:
        """[G, N] float64: 1 for sequences with a valid token; None where all have one."""
        return None if self.gaps.valid is None else self.own(self.gaps.filled).double()

    @cached_property
    def bins(self) -> Tensor:
        """[G, T] int32: the bins of summary.histogram of the log-ratios."""
        return histogram_bins(self.own(self.gaps.columns.log_ratio))

    @cached_property
    def cross(self) -> Tensor:
        """[T]: mismatch times staleness of each token that is valid for both, else 0; where all three were sent."""
        d, joint = self.gaps.columns.log_ratio, self.block.batch.joint
        return d[joint["mismatch"]] * d[joint["staleness"]]

    @cached_property
    def cross_of_sequences(self) -> Tensor:
        """[N] float64: its sum over each sequence."""
        return self.gaps.segments.sum(self.cross)

    @cached_property
    def sequence_signs(self) -> Tensor | None:
        """[G, N] int64: 0, 1, 2 by the sign of the mean advantage of a sequence's valid tokens; None without any."""
        advantages = self.gaps.advantages
        if advantages is None:
            return None
        if advantages.a_token:
            sums = self.gaps.segments.sum(self.own(self.gaps.kept(advantages.values.expand(self.gaps.number, -1))))
        else:
            sums = advantages.values.expand(self.number, -1)
        return torch.sign(sums).long() + 1
