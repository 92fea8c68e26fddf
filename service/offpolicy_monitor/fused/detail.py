"""What the pass found of each sequence, and what rows decided about each sequence and token, for /v1/evaluate.

In the shape of what was sent: S sequences, and P positions, whatever the mask left out.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.fused.arrays import (
    DENOMINATOR,
    NEGATIVES,
    NEUTRAL,
    NUMERATOR,
    POSITIVES,
    SUM,
)
from offpolicy_monitor.fused.batch import Batch
from offpolicy_monitor.fused.measured import Left
from offpolicy_monitor.fused.parts import Rows
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.summary.evaluation import SEQUENCE_FIGURES, RowDetail, SequenceColumns
from offpolicy_monitor.vocabulary import EXPONENT_CLAMP, GAPS, NEGATIVE, POSITIVE

Array = NDArray[Any]


def sequence_columns(batch: Batch, ranking: Array) -> SequenceColumns:
    """ranking [4, 3, S]: valid tokens, max |d|, mean d and the sum of k3 of each sequence."""
    source, gaps = batch.source, {}
    for gap in batch.gaps:
        tokens, furthest, mean, k3 = ranking[:, GAPS.index(gap)]
        number = np.where(tokens > 0, tokens, np.nan)
        figures = (mean, mean * number, furthest, -mean, k3 / number)
        columns = [np.where(tokens > 0, figure, np.nan) for figure in figures]
        gaps[gap] = dict(zip(SEQUENCE_FIGURES, columns, strict=True))
    return SequenceColumns(np.diff(source.offsets), source.sequence_ids, gaps)


def row_details(batch: Batch, rows: Rows, parts: Sequence[Left]) -> Iterator[RowDetail]:
    """What each row decided, in their order."""
    of_gap = {gap: one for one in parts if not one.chosen.alone for gap in one.chosen.gaps}
    by_token, positions = rows.detail == "token", int(batch.source.lengths.sum())
    for row, k, of_tokens in rows.numbered:
        sequences = np.zeros(batch.source.sequences, np.uint8)
        tokens = np.zeros(positions, np.uint8) if by_token else None
        weights = np.zeros(positions, np.float32) if by_token and row.weight is not None else None
        if row.gap in of_gap:
            part = of_gap[row.gap]
            where = _positions(batch, part)
            kept, kept_tokens = _by_token_rule(part, k) if of_tokens else _by_sequence_rule(batch, part, k, by_token)
            sequences[:] = kept
            if tokens is not None and kept_tokens is not None:
                tokens[where] = kept_tokens
            if weights is not None:
                own = _weights(row, part, of_tokens)
                weights = weights.astype(own.dtype)
                weights[where] = own if kept_tokens is None else np.where(kept_tokens, own, 0.0)
        yield RowDetail(sequences, tokens, weights)


def _by_token_rule(part: Left, k: int) -> tuple[Array, Array | None]:
    """Whether any valid token is kept of each sequence [S], and which tokens are [T]."""
    kept = part.left.kept[k] if len(part.left.kept) else None
    return part.left.dropped[k] < np.diff(part.tokens.offsets), kept


def _by_sequence_rule(batch: Batch, part: Left, k: int, by_token: bool) -> tuple[Array, Array | None]:
    """The same of a rule on sequences, which may look at the sign of A."""
    lengths, left, signs = np.diff(part.tokens.offsets), part.left, part.tokens.advantages
    takes = (left.takes[k][:, None] >> np.arange(3, dtype=np.uint8)) & 1
    if batch.advantages_of == "token":
        of_sign = np.zeros((len(lengths), 3))
        of_sign[:, NEGATIVE], of_sign[:, POSITIVE] = left.own[:, NEGATIVES], left.own[:, POSITIVES]
        of_sign[:, NEUTRAL] = lengths - of_sign.sum(1)
        kept = (of_sign * (1 - takes)).any(1)
        owners = np.repeat(np.arange(len(lengths)), lengths) if by_token else None
        return kept, None if owners is None else 1 - takes[owners, _sign(signs)]
    own = _sign(signs) if len(signs) else np.full(len(lengths), NEUTRAL)
    dropped = takes[np.arange(len(lengths)), own]
    return (lengths > 0) & (dropped == 0), np.repeat(1 - dropped, lengths) if by_token else None


def _sign(advantages: Array) -> Array:
    signs: Array = np.sign(advantages).astype(np.int64) + NEUTRAL
    return signs


def _weights(row: MethodRow, part: Left, of_tokens: bool) -> Array:
    """[T]: clip(r, lower, upper) of each token, or of its sequence."""
    clip = row.weight
    assert clip is not None
    gap, lengths = GAPS.index(row.gap), np.diff(part.tokens.offsets)
    if of_tokens:
        log_ratio: Array = part.tokens.logprobs[NUMERATOR[gap]] - part.tokens.logprobs[DENOMINATOR[gap]]
    else:
        sums = part.left.gaps[:, gap, SUM]
        mean = clip.band.score == "log_geometric_ratio"
        log_ratio = np.repeat(sums / np.maximum(lengths, 1) if mean else sums, lengths)
    largest = float(np.finfo(log_ratio.dtype).max)
    lower, upper = (bound if bound is None else min(bound, largest) for bound in (clip.lower, clip.upper))
    found: Array = np.exp(log_ratio.clip(-EXPONENT_CLAMP, EXPONENT_CLAMP)).clip(lower, upper)
    return found


def _positions(batch: Batch, part: Left) -> Array | slice:
    """The positions as sent of a part's tokens."""
    positions, chosen = batch.source.positions, part.chosen.tokens
    if positions is None:
        return slice(None) if chosen is None else np.flatnonzero(chosen)
    found: Array = positions if chosen is None else positions[chosen]
    return found
