"""Per-sequence figures and per-token masks of a batch, for /v1/evaluate.

Answers in the shape of what was sent: S sequences, and within each one entry a position, whatever the mask left out.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.batch import Array, RaggedBatch
from offpolicy_monitor.core.decision import Decision, keep_tokens, token_weights
from offpolicy_monitor.core.gap import GapTokens
from offpolicy_monitor.measure.blocks import Block, DeviceBatch, ValidTokens
from offpolicy_monitor.measure.decide import Decider, applicable
from offpolicy_monitor.methods import MethodRow


def sequence_figures(batch: RaggedBatch, loaded: DeviceBatch, block_tokens: int) -> list[dict[str, Any]]:
    """One object a sequence: its tokens under the mask and per gap its figures, None where it has no valid token."""
    counts = np.diff(batch.offsets).tolist()
    ids: Sequence[str | None] = batch.sequence_ids or [None] * batch.sequences
    rows: list[dict[str, Any]] = [
        {**({} if name is None else {"id": name}), "tokens": count, "gaps": {}}
        for name, count in zip(ids, counts, strict=True)
    ]
    for gap in loaded.gaps:
        columns = _gap_columns(batch, loaded, gap, block_tokens)
        for place, row in enumerate(rows):
            row["gaps"][gap] = {name: _number(values[place]) for name, values in columns.items()}
    return rows


def _gap_columns(batch: RaggedBatch, loaded: DeviceBatch, gap: str, block_tokens: int) -> Mapping[str, Array]:
    """Figure -> [S] float64, NaN where a sequence has no valid token."""
    columns: dict[str, Array] = {}
    for block in loaded.blocks(block_tokens):
        valid = block.valid(gap)
        if valid is None:
            continue
        for name, values in _one_a_sequence(valid.gap).items():
            column = columns.setdefault(name, np.full(batch.sequences, np.nan))
            column[block.first + valid.sequences.numpy()] = values.cpu().numpy()
    return columns or dict.fromkeys(SEQUENCE_FIGURES, np.full(batch.sequences, np.nan))


SEQUENCE_FIGURES = ("log_geometric_ratio", "log_product_ratio", "abs_log_ratio_max", "k1", "k3")


def _one_a_sequence(gap: GapTokens) -> Mapping[str, Tensor]:
    values = (
        gap.sequence_mean,
        gap.sequence_sum,
        gap.sequence_abs_max,
        -gap.sequence_mean,
        gap.sequence_k3_sum / gap.segments.counts,
    )
    return dict(zip(SEQUENCE_FIGURES, values, strict=True))


def method_details(
    batch: RaggedBatch, loaded: DeviceBatch, rows: Sequence[MethodRow], block_tokens: int, by_token: bool
) -> list[dict[str, Any]]:
    """For each applicable row `keep_sequences`; with `by_token` also `keep_tokens` and a truncation's `weights`."""
    rows = applicable(rows, loaded)
    decider = Decider(rows, loaded)
    starts = np.concatenate([[0], np.cumsum(batch.lengths)]).astype(np.int64)
    collected = [_Positions(int(starts[-1]), row.method.weights) for row in rows]
    for block in loaded.blocks(block_tokens):
        for place, row in enumerate(rows):
            valid = block.valid(row.gap)
            if valid is not None:
                collected[place].add(batch, block, valid, decider.decide(place, valid.gap))
    return [positions.answer(starts, by_token) for positions in collected]


class _Positions:
    """What one row decided, at each of the P positions as sent."""

    def __init__(self, positions: int, weights: bool) -> None:
        self.keep = np.zeros(positions, np.uint8)
        self.weights: Array | None = np.zeros(positions) if weights else None

    def add(self, batch: RaggedBatch, block: Block, valid: ValidTokens, decision: Decision) -> None:
        tokens = torch.arange(block.token_range.stop - block.token_range.start)
        chosen = tokens if valid.tokens is None else valid.tokens.cpu()
        places: Array = chosen.numpy() + block.token_range.start
        if batch.positions is not None:
            places = batch.positions[places]
        self.keep[places] = keep_tokens(valid.gap, decision).cpu().numpy()
        weights = token_weights(valid.gap, decision)
        if self.weights is not None and weights is not None:
            self.weights[places] = weights.cpu().numpy()

    def answer(self, starts: Array, by_token: bool) -> dict[str, Any]:
        kept = np.concatenate([[0], np.cumsum(self.keep, dtype=np.int64)])[starts]
        answer: dict[str, Any] = {"keep_sequences": (np.diff(kept) > 0).astype(int).tolist()}
        if by_token:
            answer["keep_tokens"] = _split(self.keep, starts)
            if self.weights is not None:
                answer["weights"] = _split(self.weights, starts)
        return answer


def _split(values: Array, starts: Array) -> list[list[float]]:
    flat = values.tolist()
    return [flat[begin:end] for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]


def _number(value: Any) -> float | None:
    number = float(value)
    return number if np.isfinite(number) else None
