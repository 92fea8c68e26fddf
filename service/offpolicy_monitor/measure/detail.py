"""Per-sequence figures and per-token masks of a batch, for /v1/evaluate, collected block by block.

In the shape of what was sent: S sequences, and within each one entry a position, whatever the mask left out.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.batch import Array, RaggedBatch
from offpolicy_monitor.core.decision import Decision, keep_tokens, token_weights
from offpolicy_monitor.core.gap import GapTokens
from offpolicy_monitor.measure.blocks import Block, DeviceBatch, ValidTokens
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.summary.evaluation import RowDetail, SequenceColumns

SEQUENCE_FIGURES: Final = ("log_geometric_ratio", "log_product_ratio", "abs_log_ratio_max", "k1", "k3")


class SequenceFigures:
    """For each gap its figures by sequence, NaN where a sequence has no valid token."""

    def __init__(self, batch: RaggedBatch, loaded: DeviceBatch) -> None:
        self._batch = batch
        self._columns = {
            gap: {name: np.full(batch.sequences, np.nan) for name in SEQUENCE_FIGURES} for gap in loaded.gaps
        }

    def add(self, block: Block) -> None:
        """The figures of the block's sequences."""
        for gap, columns in self._columns.items():
            valid = block.valid(gap)
            if valid is not None:
                places = block.first + valid.sequences.numpy()
                for name, values in _one_a_sequence(valid.gap).items():
                    columns[name][places] = values.cpu().numpy()

    def columns(self) -> SequenceColumns:
        """All of them."""
        return SequenceColumns(np.diff(self._batch.offsets), self._batch.sequence_ids, self._columns)


def _one_a_sequence(gap: GapTokens) -> Mapping[str, Tensor]:
    values = (
        gap.sequence_mean,
        gap.sequence_sum,
        gap.sequence_abs_max,
        -gap.sequence_mean,
        gap.sequence_k3_sum / gap.segments.counts,
    )
    return dict(zip(SEQUENCE_FIGURES, values, strict=True))


class Decisions:
    """What one row decided: by sequence, and with `by_token` at each of the P positions as sent."""

    def __init__(self, batch: RaggedBatch, row: MethodRow, by_token: bool) -> None:
        positions = int(batch.lengths.sum())
        self._batch = batch
        self._keep_sequences = np.zeros(batch.sequences, np.uint8)
        self._keep = np.zeros(positions, np.uint8) if by_token else None
        self._weights = np.zeros(positions, np.float32) if by_token and row.method.reweights else None

    def add(self, block: Block, valid: ValidTokens, decision: Decision) -> None:
        """The decision about a block's valid tokens."""
        keep = keep_tokens(valid.gap, decision)
        kept = valid.gap.segments.selected(keep) > 0
        self._keep_sequences[block.first + valid.sequences.numpy()] = kept.numpy()
        if self._keep is None:
            return
        places = self._places(block, valid)
        self._keep[places] = keep.cpu().numpy()
        weights = token_weights(valid.gap, decision)
        if self._weights is not None and weights is not None:
            if self._weights.dtype != np.float64 and weights.dtype == torch.float64:
                self._weights = self._weights.astype(np.float64)
            self._weights[places] = weights.cpu().numpy()

    def detail(self) -> RowDetail:
        """All of it."""
        return RowDetail(self._keep_sequences, self._keep, self._weights)

    def _places(self, block: Block, valid: ValidTokens) -> Array:
        """The positions as sent of a block's valid tokens."""
        tokens = torch.arange(block.token_range.stop - block.token_range.start)
        chosen = tokens if valid.tokens is None else valid.tokens.cpu()
        places: Array = chosen.numpy() + block.token_range.start
        return places if self._batch.positions is None else self._batch.positions[places]
