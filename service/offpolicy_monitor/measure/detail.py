"""Per-sequence figures and per-token masks of a batch, for /v1/evaluate, collected block by block.

In the shape of what was sent: S sequences, and within each one entry per position, whatever the mask left out. Masks
and weights come to the host with each slice, since all of them may not fit the device: it is waited for then, as it is
for no shard that is stored.
"""

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.batch import Array, RaggedBatch
from offpolicy_monitor.core.corrections import Decided, Group, clip_weights, gaps_of
from offpolicy_monitor.core.device import where
from offpolicy_monitor.core.gap import Gaps, chosen
from offpolicy_monitor.measure.blocks import Block, DeviceBatch
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.methods.rule import Clip
from offpolicy_monitor.summary.evaluation import SEQUENCE_FIGURES, RowDetail, SequenceColumns


def sequence_figures(view: BlockView) -> Tensor:
    """[SEQUENCE_FIGURES, G, N] of a block, NaN where a sequence has no valid token."""
    gaps = view.gaps
    mean = gaps.means.log_ratio
    figures = (mean, gaps.sums.log_ratio, gaps.extremes["log_ratio_abs"].max, -mean, gaps.means.k3)
    return torch.stack([view.own(where(gaps.filled, figure, torch.nan)) for figure in figures])


def sequence_columns(loaded: DeviceBatch, figures: Array | None) -> SequenceColumns:
    """`sequence_figures` of all of a batch, in the shape of what was sent; None of one without a gap or a token."""
    batch = loaded.source
    columns = {gap: {name: np.full(batch.sequences, np.nan) for name in SEQUENCE_FIGURES} for gap in loaded.gaps}
    if figures is not None:
        for name, of_gaps in zip(SEQUENCE_FIGURES, figures, strict=True):
            for gap, values in zip(loaded.gaps, of_gaps, strict=True):
                columns[gap][name][loaded.sequences] = values
    return SequenceColumns(np.diff(batch.offsets), batch.sequence_ids, columns)


class Decisions:
    """What one row decided: by sequence, and with `by_token` at each of the P positions as sent."""

    def __init__(self, batch: RaggedBatch, row: MethodRow, by_token: bool) -> None:
        positions = int(batch.lengths.sum())
        self._keep_sequences = np.zeros(batch.sequences, np.uint8)
        self._keep = np.zeros(positions, np.uint8) if by_token else None
        weighed = by_token and row.weight is not None
        self._weights: Array | None = np.zeros(positions, np.float32) if weighed else None

    @property
    def by_token(self) -> bool:
        """Whether it is asked about each token too."""
        return self._keep is not None

    def add(self, block: Block, positions: Array | slice, keep: Array | None, keep_sequences: Array) -> None:
        """What is kept of a block's tokens, which are at these positions, and whether any is of each sequence."""
        self._keep_sequences[block.sequences] = keep_sequences
        if self._keep is not None and keep is not None:
            self._keep[positions] = keep

    def weigh(self, positions: Array | slice, weights: Array) -> None:
        """The weights of a block's tokens."""
        if self._weights is None:
            return
        if self._weights.dtype != np.float64 and weights.dtype == np.float64:
            self._weights = self._weights.astype(np.float64)
        self._weights[positions] = weights

    def detail(self) -> RowDetail:
        """All of it."""
        return RowDetail(self._keep_sequences, self._keep, self._weights)


def add_decisions(block: Block, decided: Decided, decisions: list[Decisions]) -> None:
    """Add what rows decided about a block to the decisions of each; `decisions` by the number of a row."""
    positions = _positions(block)
    for group in decided.groups:
        keep = _kept(block.gaps, group)
        any_kept = block.gaps.segments.max(keep) > 0
        of_tokens = keep.cpu().numpy() if any(one.by_token for one in decisions) else [None] * len(group.rules)
        for placed, kept, sequences in zip(group.rules, of_tokens, any_kept.cpu().numpy(), strict=True):
            if not (isinstance(placed.rule, Clip) and placed.rule.within):  # what its row keeps, another rule says
                decisions[placed.row].add(block, positions, kept, sequences)
        if group.clips:
            for placed, own in zip(group.clips, _weights(block.gaps, group).cpu().numpy(), strict=True):
                decisions[placed.row].weigh(positions, own)


def _kept(gaps: Gaps, group: Group) -> Tensor:
    """[R, T] uint8: the valid tokens that each rule keeps; a rule that reweights keeps all."""
    marked = gaps.segments.spread(group.marked) if group.whole else group.marked
    drops = torch.arange(len(group.rules), device=marked.device)[:, None] < len(group.drops)
    keep = ~(marked & drops)
    return (keep if gaps.valid is None else keep & chosen(gaps.valid, gaps_of(group.rules))).to(torch.uint8)


def _weights(gaps: Gaps, group: Group) -> Tensor:
    """[R, T]: the weights of valid tokens, 0 at the others."""
    weights = clip_weights(gaps, group)[0]
    weights = gaps.segments.spread(weights) if group.whole else weights.to(gaps.policies.dtype)
    return weights if gaps.valid is None else where(chosen(gaps.valid, gaps_of(group.clips)), weights, 0.0)


def _positions(block: Block) -> Array | slice:
    """The positions as sent of a block's tokens."""
    positions = block.batch.source.positions
    return block.token_range if positions is None else positions[block.token_range]
