"""BlockView: what the parts of a summary are made from: a block's gaps, what rows decide about them, and where it is
from.

What several parts need is computed once, and only when asked for. Shapes: G gaps of the batch (the stacked gaps beyond
them are over jointly valid tokens), T tokens, N sequences of the block.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor

from offpolicy_monitor.batch import Origin
from offpolicy_monitor.core.advantages import signs_of
from offpolicy_monitor.core.corrections import Decided
from offpolicy_monitor.core.decision import differing, dropped_in_sequences
from offpolicy_monitor.core.device import constant
from offpolicy_monitor.core.gap import Gaps
from offpolicy_monitor.core.routing import RoutingSums
from offpolicy_monitor.core.scores import Score, token_scores
from offpolicy_monitor.measure.bins import histogram_bins
from offpolicy_monitor.measure.blocks import Block
from offpolicy_monitor.measure.decide import Decider
from offpolicy_monitor.summary.tables.lengths import BINS, BINS_PER_POWER
from offpolicy_monitor.vocabulary import NEGATIVE, POSITIVE


@dataclass(frozen=True, eq=False)
class BlockView:
    """A block, the rows of its batch, the origin of it, what answers by gap how the experts of its batch differ, and
    the scores of tokens whose bins are looked at beside those of log-ratios."""

    block: Block
    decider: Decider
    origin: Origin
    routed: Callable[[], Mapping[str, RoutingSums]] = dict
    binned: Sequence[Score] = ()

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
        """What the rows decide, by their other anchors too."""
        return self.decider.decide(self.block, anchors=True)

    @cached_property
    def dropped(self) -> Tensor | None:
        """[2, rows, N] float64: tokens of each sequence that rows drop, and those below their bounds; None if no row
        drops."""
        return dropped_in_sequences(self.gaps, self.decided) if self.decided.drops else None

    @cached_property
    def differing(self) -> tuple[tuple[int, ...], Tensor] | None:
        """Rows that have another anchor, and on how many tokens each decides otherwise by it; None without any."""
        return differing(self.gaps, self.decided) if self.decider.others else None

    def own(self, stacked: Tensor) -> Tensor:
        """The batch's gaps of all that are stacked: [G', ...] -> [G, ...]."""
        return stacked if len(stacked) == self.number else stacked[: self.number]

    def figures_of_sequences(self) -> Tensor:
        """[figures, G, N] float64, by which sequences are ranked (measure.worst): valid tokens, max |d|, mean d and the
        sum of k3."""
        gaps = self.gaps
        figures = (gaps.counts, gaps.extremes["log_ratio_abs"].max, gaps.means.log_ratio, gaps.sums.k3)
        return torch.stack([self.own(figure) for figure in figures])

    @cached_property
    def valid(self) -> Tensor | None:
        """[G, T] float64: 1 for valid tokens; None where all are."""
        return None if self.gaps.valid is None else self.own(self.gaps.valid).double()

    @cached_property
    def filled(self) -> Tensor | None:
        """[G, N] float64: 1 for sequences with a valid token; None where all have one."""
        return None if self.gaps.valid is None else self.own(self.gaps.filled).double()

    @property
    def bins(self) -> Tensor:
        """[G, T] int32: the bins of summary.histogram of the log-ratios."""
        return self.score_bins[: self.number]

    @property
    def score_bins(self) -> Tensor:
        """[G + R, T] int32: the same, and those of the R scores that are looked at beside them."""
        return self._bins[0]

    @property
    def sequence_bins(self) -> Tensor:
        """[2, G, N] int32: the same of their mean L and their sum D over a sequence."""
        return self._bins[1]

    @cached_property
    def _bins(self) -> list[Tensor]:
        mean, product = self.own(self.gaps.means.log_ratio), self.own(self.gaps.sums.log_ratio)
        scores = [*self.own(self.gaps.columns.log_ratio).unbind(), *token_scores(self.gaps, self.binned)]
        return histogram_bins(torch.stack(scores), torch.stack([mean, product]))

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
        if not advantages.per_token:
            return advantages.groups.expand(self.number, -1)
        mass = self.own(self.gaps.by_sign).select(1, 1)
        return signs_of(mass[:, POSITIVE] - mass[:, NEGATIVE])

    @cached_property
    def length_bins(self) -> Tensor:
        """[G, N] int64: the length of each sequence in quarters of a power of two."""
        return self.lengths_among(_length_edges(self.gaps.policies.device))

    def lengths_among(self, edges: Tensor) -> Tensor:
        """[G, N] int64: at how many ascending edges [E] float64, or beyond them, each sequence's valid tokens are."""
        if self.gaps.valid is None:
            return torch.bucketize(self.gaps.segments.counts, edges, right=True).expand(self.number, -1)
        return torch.bucketize(self.own(self.gaps.counts), edges, right=True)


@cache
def _length_edges(device: torch.device) -> Tensor:
    """Where the bins of summary.tables.lengths after the first begin."""
    return constant([2.0 ** (index / BINS_PER_POWER) for index in range(1, BINS)], torch.float64, device)
