"""The worst sequences of a batch: those that stand first in some ranking of summary.tables.worst.

Rankings are cut by figures of sequences, which are there already; only of the few that are left are tokens looked at,
on the host, where the batch came from. Both forms of measuring end here; no torch.

Shapes: N sequences of the batch that have a token, C of them chosen, K of these with raw tokens; G gaps.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from offpolicy_monitor.batch import Array, RaggedBatch
from offpolicy_monitor.summary.tables.ranking import first_of_each, marked
from offpolicy_monitor.summary.tables.worst import (
    BESIDE,
    GAP_INDEX,
    GAPS,
    LARGEST,
    MOST,
    MOST_TOKENS,
    NO_POSITIONS,
    OF_TOKENS,
    Numbers,
    Positions,
    Ranked,
    Sequences,
    Tokens,
    Worst,
)
from offpolicy_monitor.vocabulary import GAP_LOGPROBS, LOGPROBS

NO_SPANS: Final = np.zeros((0, 2), np.int64)


def worst(source: RaggedBatch, gaps: Sequence[str], figures: Array, shard: int | None, keep: int) -> Worst:
    """The worst sequences of a batch by [F, G, N], `BlockView.figures_of_sequences` of all of it.

    The first `keep` of each ranking keep their raw tokens.
    """
    ranked = ranked_by(source, gaps, figures, keep)
    if not len(ranked.sequences):
        return Worst()
    return worst_of(source, ranked, tokens_of(source, gaps, ranked.sequences, ranked.kept), shard, keep)


def worst_of(source: RaggedBatch, ranked: Ranked, tokens: Tokens, shard: int | None, keep: int) -> Worst:
    """What is kept of sequences of a batch: what was found, and what was sent beside it."""
    sequences, kept = ranked.sequences, ranked.kept
    columns, of_kept = np.empty((len(sequences), 3), np.int64), np.empty((len(kept), 2), np.int64)
    columns[:, 0], columns[:, 1], columns[:, 2] = shard or 0, sequences, ranked.sizes
    of_kept[:, 0], of_kept[:, 1] = kept, keep
    ids = source.sequence_ids
    return Worst.of(
        Sequences(
            columns,
            ranked.figures,
            tokens.furthest,
            of_kept,
            tokens.raw,
            _beside(source, sequences[kept], tokens.spans) if len(kept) else (),
            None if ids is None else [ids[index] for index in sequences.tolist()],
        )
    )


def ranked_by(source: RaggedBatch, gaps: Sequence[str], figures: Array, keep: int) -> Ranked:
    """The first of each ranking by `BlockView.figures_of_sequences`; the first `keep` of each keep their raw tokens."""
    values = _single(figures[1:])
    ranked, there = first_of_each(np.abs(np.concatenate(values)), MOST)
    chosen, most = (marked(ranked[:, :number][there[:, :number]], values.shape[-1]) for number in (MOST, keep))
    sequences = np.flatnonzero(source.offsets[1:] > source.offsets[:-1])[chosen]
    return Ranked(
        sequences,
        source.offsets[sequences + 1] - source.offsets[sequences],
        _of_gaps(gaps, np.array([figures[0], *values[1:]])[..., chosen]),
        chosen.searchsorted(most),
    )


def tokens_of(source: RaggedBatch, gaps: Sequence[str], sequences: Array, kept: Array) -> Tokens:
    """What is kept of some sequences of a batch."""
    begins, ends = source.offsets[sequences], source.offsets[sequences + 1]
    found, distances = _furthest(source, gaps, begins, ends)
    tokens = _ascending(found[distances > 0])
    first = tokens.searchsorted(begins)
    spans = _spans(begins[kept], ends[kept], tokens[first[kept]]) if len(kept) else NO_SPANS
    raw = [np.arange(begin, end) for begin, end in spans.tolist()]
    return Tokens(
        _read(source, tokens, tokens.searchsorted(ends) - first),
        _read(source, np.concatenate(raw), spans[:, 1] - spans[:, 0]) if raw else NO_POSITIONS,
        spans,
    )


def _ascending(values: Array) -> Array:
    """The different ones, in ascending order."""
    values.sort()
    new = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return values[new]


def _of_gaps(gaps: Sequence[str], figures: Array) -> Array:
    """[F, G, C] of the gaps that were sent -> [C, 3, F] of all, NaN where a sequence has no token of a gap."""
    found = np.full((figures.shape[-1], len(GAPS), len(figures)), np.nan)
    for gap, of_gap in zip(gaps, figures.swapaxes(0, 1), strict=True):
        found[:, GAP_INDEX[gap]] = of_gap.T
    found[~(found[..., 0] > 0)] = np.nan
    return found


def _furthest(source: RaggedBatch, gaps: Sequence[str], begins: Array, ends: Array) -> tuple[Array, Array]:
    """The first token with the largest |d| of each gap in each sequence [G, C], and that |d|: 0 or less for none."""
    sizes = ends - begins
    stops = np.cumsum(sizes)
    starts, whole = stops - sizes, int(stops[-1])
    tokens = np.arange(whole) + np.repeat(begins - starts, sizes)
    sent = np.array([source.columns[name][tokens] for name in LOGPROBS if name in source.columns], np.float64)
    rows = [name for name in LOGPROBS if name in source.columns]
    above, below = ([rows.index(pair[side]) for pair in map(GAP_LOGPROBS.__getitem__, gaps)] for side in (0, 1))
    with np.errstate(invalid="ignore"):
        distances = np.abs(sent[above] - sent[below])
    distances = np.where(distances < np.inf, distances, -1.0)
    most = np.maximum.reduceat(distances, starts, axis=1)
    found = np.flatnonzero(distances == np.repeat(most, sizes, axis=1))  # over gaps and tokens, as `first` is
    first = np.arange(len(gaps))[:, None] * whole + starts
    return tokens[found[np.searchsorted(found, first)] % whole], most


def _spans(first: Array, end: Array, tokens: Array) -> Array:
    """[K, 2]: the tokens that are kept of sequences from `first` to `end`, around one of each."""
    begins = np.maximum(np.minimum(tokens - MOST_TOKENS // 2, end - MOST_TOKENS), first)
    return np.stack([begins, np.minimum(begins + MOST_TOKENS, end)], 1)


def _beside(source: RaggedBatch, sequences: Array, spans: Array) -> list[Numbers]:
    """What is kept beside the raw tokens of these sequences; nothing where none was sent."""
    if not source.columns.keys() & set(BESIDE):
        return []
    found = []
    for name in BESIDE:
        column = source.columns.get(name)
        if column is None:
            found.append(Numbers(np.zeros(len(spans), np.int64), np.zeros(0)))
        elif name in source.per_token:
            values = np.concatenate([column[begin:end] for begin, end in spans.tolist()])
            found.append(Numbers(spans[:, 1] - spans[:, 0] + OF_TOKENS, _finite(values)))
        else:
            found.append(Numbers(np.ones(len(spans), np.int64), _finite(column[sequences])))
    return found


def _finite(values: Array) -> Array:
    return values if values.dtype.kind in "iu" else np.where(np.isfinite(values), values, np.nan)


def _read(source: RaggedBatch, tokens: Array, numbers: Array) -> Positions:
    """Log-probs at some tokens as they were sent, at their positions in their sequences; so many of each sequence."""
    sequences = np.searchsorted(source.offsets, tokens, side="right") - 1
    if source.positions is None:
        positions = tokens - source.offsets[sequences]
    else:
        positions = source.positions[tokens] - (np.cumsum(source.lengths) - source.lengths)[sequences]
    sent = [(k, source.columns[name]) for k, name in enumerate(LOGPROBS) if name in source.columns]
    dtype = np.promote_types(np.float32, sent[0][1].dtype)  # they share one
    logprobs = np.full((len(tokens), len(LOGPROBS)), np.nan, dtype)
    for k, column in sent:
        logprobs[:, k] = column[tokens]
    logprobs[np.isinf(logprobs)] = np.nan
    return Positions(numbers, positions, logprobs)


def _single(values: Array) -> Array:
    return np.minimum(np.maximum(values, -LARGEST), LARGEST).astype(np.float32)
