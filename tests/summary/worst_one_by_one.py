"""The worst sequences one by one, as objects: what those in columns are held against, by loops easy to read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from offpolicy_monitor.summary.tables.worst import (
    BESIDE,
    GAPS,
    LARGEST,
    MOST,
    OF_TOKENS,
    RANKINGS,
    Numbers,
    Positions,
    Ranking,
    Sequences,
    Worst,
)

#: What was not sent; None is what is not finite.
ABSENT = object()
Logprobs = tuple[float | None, float | None, float | None]


class Figures(NamedTuple):
    """Of one gap, float32: valid tokens, mean d, the sum of k3."""

    tokens: int
    log_geometric_ratio: float
    k3: float


class Position(NamedTuple):
    position: int
    logprobs: Logprobs

    def d(self, gap: str) -> float | None:
        above, below = (self.logprobs[side] for side in GAPS[gap])
        return None if above is None or below is None else above - below


class Columns(NamedTuple):
    """Raw tokens, and beside them by name a number or one per token."""

    ranks: int
    tokens: tuple[Position, ...]
    beside: Mapping[str, Any] = {}


@dataclass(frozen=True)
class One:
    """A sequence."""

    shard: int
    index: int
    tokens: int
    gaps: Mapping[str, Figures] = field(default_factory=dict)
    positions: tuple[Position, ...] = ()
    id: str | None = None
    columns: Columns | None = None

    def furthest(self, gap: str) -> float:
        """Max |d|, float32."""
        magnitudes = [abs(d) for position in self.positions if (d := position.d(gap)) is not None]
        return float(np.float32(min(max(magnitudes, default=0.0), LARGEST)))

    def value(self, ranking: Ranking) -> float:
        """What a ranking compares."""
        gap, by = ranking
        if gap not in self.gaps:
            return 0.0
        own = self.gaps[gap]
        return {"abs_log_ratio_max": self.furthest(gap), "log_geometric_ratio": abs(own[1]), "k3_share": abs(own[2])}[
            by
        ]

    @property
    def order(self) -> tuple[Any, ...]:
        """Decides between equal values."""
        own = [self.gaps.get(gap, (-1.0,) * 3) for gap in GAPS]
        return self.shard, self.index, self.tokens, *own, *(self.furthest(gap) for gap in GAPS)


def ranked(sequences: Iterable[One], ranking: Ranking) -> list[One]:
    """The first of a ranking."""
    found = sorted((s for s in sequences if s.value(ranking) > 0), key=lambda s: (-s.value(ranking), s.order))
    return found[:MOST]


def worst_of(sequences: Iterable[One]) -> list[One]:
    """The worst among these, in order; what lost the rank for which its tokens were kept is without them."""
    candidates = {s.order: s for s in reversed(list(sequences))}
    best: dict[Any, int] = {}
    for ranking in RANKINGS:
        for rank, one in enumerate(ranked(candidates.values(), ranking)):
            best[one.order] = min(rank, best.get(one.order, rank))
    found = []
    for order in sorted(best):
        one = candidates[order]
        keeps = one.columns is not None and best[order] < one.columns.ranks
        found.append(one if keeps else replace(one, columns=None))
    return found


def in_columns(sequences: Sequence[One]) -> Sequences:
    """The same in columns."""
    kept = [(row, one.columns) for row, one in enumerate(sequences) if one.columns is not None]
    beside = [_numbers([own.beside.get(name, ABSENT) for _, own in kept]) for name in BESIDE]
    return Sequences(
        np.array([(s.shard, s.index, s.tokens) for s in sequences], np.int64).reshape(-1, 3),
        np.array([[s.gaps.get(gap, (np.nan,) * 3) for gap in GAPS] for s in sequences], float).reshape(
            -1, len(GAPS), 3
        ),
        _positions([s.positions for s in sequences]),
        np.array([(row, own.ranks) for row, own in kept], np.int64).reshape(-1, 2),
        _positions([own.tokens for _, own in kept]),
        beside if any(own.beside for _, own in kept) else (),
        [s.id for s in sequences],
    )


def worst(*sequences: One) -> Worst:
    """What is kept of them, which are the worst."""
    return Worst.of(in_columns(sequences))


def _positions(groups: Sequence[Sequence[Position]]) -> Positions:
    flat = [position for group in groups for position in group]
    return Positions(
        np.array([len(group) for group in groups], np.int64),
        np.array([position.position for position in flat], np.int64),
        np.array([position.logprobs for position in flat], float).reshape(-1, 3),
    )


def _numbers(found: Sequence[Any]) -> Numbers:
    values = [value for own in found if own is not ABSENT for value in (own if isinstance(own, tuple) else (own,))]
    counts = [0 if own is ABSENT else len(own) + OF_TOKENS if isinstance(own, tuple) else 1 for own in found]
    is_whole = all(type(value) is int for value in values)
    return Numbers(np.array(counts, np.int64), np.array(values, np.int64 if is_whole else float))


def one_by_one(found: Worst | Sequences) -> list[One]:
    """What columns hold."""
    found = found.sequences if isinstance(found, Worst) else found
    positions, raw = (_groups(part) for part in (found.furthest, found.raw))
    columns = {}
    for number, (row, ranks) in enumerate(found.kept.tolist()):
        beside = {}
        for name, own in zip(BESIDE, found.beside, strict=False):
            begin = int(own.sizes[:number].sum())
            values = _known(own.values[begin : begin + int(own.sizes[number])].tolist())
            if own.counts[number]:
                beside[name] = values[0] if own.counts[number] == 1 else values
        columns[row] = Columns(ranks, raw[number], beside)
    sequences = []
    for row, (shard, index, tokens) in enumerate(found.whole.tolist()):
        figures = zip(GAPS, found.gaps[row].tolist(), strict=True)
        gaps = {gap: Figures(int(n), mean, k3) for gap, (n, mean, k3) in figures if n == n}
        id_ = found.ids[row] if found.ids else None
        sequences.append(One(shard, index, tokens, gaps, positions[row], id_, columns.get(row)))
    return sequences


def _groups(found: Positions) -> list[tuple[Position, ...]]:
    pairs = zip(found.positions.tolist(), found.logprobs.tolist(), strict=True)
    flat = [Position(position, _known(logprobs)) for position, logprobs in pairs]
    ends = np.cumsum(found.numbers).tolist()
    return [tuple(flat[end - size : end]) for end, size in zip(ends, found.numbers.tolist(), strict=True)]


def _known(values: Iterable[float]) -> Any:
    return tuple(value if value == value else None for value in values)
