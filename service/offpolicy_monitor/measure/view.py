"""BlockView: what the parts of a summary are made from: a block's gaps, what rows decide about them, and where it is
from.

What several parts need is computed once, and only when asked for. Shapes: G gaps of the batch (the stacked gaps beyond
them are over jointly valid tokens), T tokens, N sequences of the block.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final

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
from offpolicy_monitor.measure.bins import bins_of
from offpolicy_monitor.measure.blocks import Block
from offpolicy_monitor.measure.decide import Decider
from offpolicy_monitor.measure.differences import Differences
from offpolicy_monitor.summary.tables.lengths import BINS, BINS_PER_POWER
from offpolicy_monitor.vocabulary import NEGATIVE, POSITIVE

#: By which sequences are ranked (measure.worst): valid tokens, max |d|, mean d and the sum of k3.
FIGURES_OF_SEQUENCES: Final = tuple(f"worst/{name}" for name in ("tokens", "max", "mean", "k3"))


@dataclass(frozen=True, eq=False)
class BlockView:
    """A block, the rows of its batch, the origin of it, differences of log-probs that are no gap's, what answers by gap
    how the experts of its batch differ, and the scores of tokens whose bins are looked at beside those of log-ratios.
    """

    block: Block
    decider: Decider
    origin: Origin
    differences: Differences
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
        return differing(self.decided) if self.decider.others else None

    def own(self, stacked: Tensor) -> Tensor:
        """The batch's gaps of all that are stacked: [G', ...] -> [G, ...]."""
        return stacked if len(stacked) == self.number else stacked[: self.number]

    def figures_of_sequences(self) -> dict[str, Tensor]:
        """[G, N] float64 each, in the order of FIGURES_OF_SEQUENCES."""
        gaps = self.gaps
        figures = (gaps.counts, gaps.extremes["log_ratio_abs"].max, gaps.means.log_ratio, gaps.sums.k3)
        return dict(zip(FIGURES_OF_SEQUENCES, map(self.own, figures), strict=True))

    @property
    def valid(self) -> Tensor | None:
        """[G, T] float64: 1 for valid tokens; None where all are."""
        return None if self.valid_and_joint is None else self.valid_and_joint[: self.number]

    @cached_property
    def valid_and_joint(self) -> Tensor | None:
        """[G + 1, T] float64: the same, and of tokens that are valid for all gaps; [G, T] where that is no question."""
        kept = self.number + (1 if self.block.batch.joint else 0)
        return None if self.gaps.valid is None else self.gaps.valid[:kept].double()

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

    @property
    def mass_bins(self) -> Tensor:
        """[G, T] int32: the bins of |A r|; there are none without advantages."""
        return self._bins[2]

    @cached_property
    def mass(self) -> Tensor:
        """[G, T] float64: |A r|, a ratio being as large as exp(80)."""
        return self.own(self.gaps.mass) * self.own(self.gaps.columns.ratio)

    @cached_property
    def _bins(self) -> tuple[Tensor, Tensor, Tensor]:
        mean, product = self.own(self.gaps.means.log_ratio), self.own(self.gaps.sums.log_ratio)
        scores = [*self.own(self.gaps.columns.log_ratio), *token_scores(self.gaps, self.binned)]
        bins, of_masses = bins_of([*scores, *mean, *product], [] if self.gaps.advantages is None else [*self.mass])
        sizes = [len(scores) * self.gaps.segments.tokens, mean.numel() + product.numel()]
        of_tokens, of_sequences = torch.split(bins, sizes)
        return (
            of_tokens.view(len(scores), -1),
            of_sequences.view(2, self.number, -1),
            of_masses.view(-1, self.gaps.segments.tokens),
        )

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
