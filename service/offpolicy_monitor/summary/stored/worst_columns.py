"""The worst sequences of a summary as columns of numbers, and their ids beside them: as version 3 stores them.

NaN stands for what is None. Max |d| is not stored: it is the largest at the positions that are. What is kept beside
log-probs follows at the end, two columns for each of BESIDE, and is left out where no sequence has any: an older
release wrote none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, pairwise
from typing import Final, NamedTuple

import numpy as np

from offpolicy_monitor.summary.arrays import Array
from offpolicy_monitor.summary.stored import columns
from offpolicy_monitor.summary.tables.worst import (
    BESIDE,
    GAPS,
    Columns,
    GapFigures,
    Position,
    Value,
    Worst,
    WorstSequence,
    abs_log_ratio_max,
)
from offpolicy_monitor.vocabulary import LOGPROBS

#: Columns: numbers of sequences; of their gaps; positions with log-probs; kept columns, and their tokens.
_SEQUENCE: Final = ("shard", "index", "tokens")
_GAP: Final = ("tokens", "log_geometric_ratio", "k3_sum")
_NO_GAP: Final = (np.nan,) * len(GapFigures._fields)
_KEPT: Final = ("sequence", "places")
#: What is added to the count of numbers of tokens, so that none are not taken for a sequence without.
OF_TOKENS: Final = 2
#: Raw tokens kept of a sequence; of a longer one, those around its worst token.
MOST_TOKENS: Final = 4096


class Positions(NamedTuple):
    """Positions with log-probs, group by group; NaN for a log-prob that is None."""

    numbers: Array  # how many each group has
    positions: Array  # [P]
    logprobs: Array  # [P, 3]

    @property
    def columns(self) -> tuple[Array, Array, Array]:
        """As they are stored."""
        return columns.whole(self.numbers), columns.whole(self.positions), columns.fractions(self.logprobs.ravel())

    def of(self, groups: Array) -> "Positions":
        """Those of some groups, in this order."""
        chosen = _entries(self.numbers, groups)
        return Positions(self.numbers[groups], self.positions[chosen], self.logprobs[chosen])


class Numbers(NamedTuple):
    """Numbers beside the raw tokens, one after the other.

    counts  [K] how each kept sequence has them: 0 for none, 1 for its own one, n + 2 for one for each of n tokens
    values  [V] whole or fractions; NaN for one that is None
    """

    counts: Array
    values: Array

    @property
    def columns(self) -> tuple[Array, Array]:
        """As they are stored; whole numbers may be below 0."""
        is_whole = self.values.dtype.kind in "iu"
        return columns.whole(self.counts), self.values.astype("<i8") if is_whole else columns.fractions(self.values)

    def of(self, kept: Array) -> "Numbers":
        """Those of some kept sequences, in this order."""
        sizes = np.where(self.counts < OF_TOKENS, self.counts, self.counts - OF_TOKENS)
        return Numbers(self.counts[kept], self.values[_entries(sizes, kept)])


def _entries(sizes: Array, groups: Array) -> Array:
    """Where the entries of some groups stand among those of all, which follow each other and have these sizes."""
    begins, wanted = np.cumsum(sizes) - sizes, sizes[groups]
    ends = np.cumsum(wanted)
    return np.repeat(begins[groups] - ends + wanted, wanted) + np.arange(wanted.sum())


NO_POSITIONS: Final = Positions(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, len(LOGPROBS)), np.float32))


NO_SPANS: Final = np.zeros((0, 2), np.int64)


class Ranked(NamedTuple):
    """Sequences of a batch that stand first in some ranking.

    sequences  [C] int64, ascending: their indices in the batch
    sizes      [C] int64: their tokens
    figures    [C, 3, 3] by gap of _GAP, NaN where a sequence has no token of a gap
    kept       [K] int64, ascending: which of the C keep their raw tokens
    """

    sequences: Array
    sizes: Array
    figures: Array
    kept: Array


class Tokens(NamedTuple):
    """What is kept of the tokens of chosen sequences.

    furthest  of each sequence, those at which the policies of some gap differ most
    raw       of each of the K
    spans     [K, 2] where these begin and end among the tokens of the batch
    """

    furthest: Positions
    raw: Positions
    spans: Array


def most_numbers(sequences: int, kept: int) -> int:
    """Numbers that the columns of so many sequences have at most, `kept` of which keep their raw tokens."""
    position = 1 + len(LOGPROBS)
    of_sequence = len(_SEQUENCE) + len(GAPS) * len(_GAP) + 1 + len(GAPS) * position
    of_kept = len(_KEPT) + 1 + MOST_TOKENS * position + len(BESIDE) * (1 + MOST_TOKENS)
    return sequences * of_sequence + kept * of_kept


@dataclass(frozen=True, eq=False)
class WorstColumns:
    """Sequences in columns, who are made when they are called for: storing them needs none."""

    sequences: Array  # [C, 3] of _SEQUENCE
    gaps: Array  # [C, 3, 3] by gap of _GAP, NaN where a gap has none
    positions: Positions  # of each sequence
    kept: Array  # [K, 2] of _KEPT
    tokens: Positions  # of each of these
    ids: Sequence[str | None] | None = None
    beside: Sequence[Numbers] = ()  # of each of BESIDE, or nothing

    @property
    def worst(self) -> Worst:
        """What they are the sequences of."""
        return Worst.later(self)

    @cached_property
    def columns(self) -> list[Array]:
        """As they are stored."""
        whole, gaps, kept = columns.whole(self.sequences.ravel()), columns.fractions(self.gaps.ravel()), self.kept
        ahead = [whole, gaps, *self.positions.columns, columns.whole(kept.ravel()), *self.tokens.columns]
        return [*ahead, *chain.from_iterable(numbers.columns for numbers in self.beside)]

    def of(self, rows: Array, kept: Array) -> "WorstColumns":
        """Those of these rows [C'], in this order; of `kept` [K'], in theirs, with raw tokens."""
        number = np.zeros(len(self.sequences), np.int64)
        number[rows] = np.arange(len(rows))
        return WorstColumns(
            self.sequences[rows],
            self.gaps[rows],
            self.positions.of(rows),
            np.stack([number[self.kept[kept, 0]], self.kept[kept, 1]], 1),
            self.tokens.of(kept),
            None if self.ids is None else [self.ids[row] for row in rows.tolist()],
            _told([numbers.of(kept) for numbers in self.beside]),
        )

    def __call__(self) -> tuple[WorstSequence, ...]:
        return sequences_of(self.columns, self.ids or [])


@dataclass(frozen=True, eq=False)
class StoredColumns:
    """Sequences as they are stored, in so many numbers; they are read when they are called for."""

    read: Callable[[], Sequence[Array]]
    ids: Sequence[str | None]
    numbers: int

    @cached_property
    def in_columns(self) -> WorstColumns:
        """The same without what is not known here."""
        sequences, gaps, numbers, positions, logprobs, kept, *rest = self.read()
        beside = list(map(Numbers, rest[3::2], rest[4::2]))
        return WorstColumns(
            sequences.reshape(-1, len(_SEQUENCE)),
            gaps.reshape(-1, len(GAPS), len(_GAP)),
            Positions(numbers, positions, logprobs.reshape(-1, len(LOGPROBS))),
            kept.reshape(-1, len(_KEPT)),
            Positions(rest[0], rest[1], rest[2].reshape(-1, len(LOGPROBS))),
            self.ids or None,
            beside[: len(BESIDE)],
        )

    def __call__(self) -> tuple[WorstSequence, ...]:
        return sequences_of(self.read(), self.ids)


def in_columns(source: Callable[[], tuple[WorstSequence, ...]]) -> WorstColumns:
    """The columns of what Worst is made of."""
    if isinstance(source, WorstColumns):
        return source
    return source.in_columns if isinstance(source, StoredColumns) else _in_columns(source())


def _in_columns(sequences: Sequence[WorstSequence]) -> WorstColumns:
    kept = [(number, s.columns) for number, s in enumerate(sequences) if s.columns is not None]
    beside = [_numbers(name, [own for _, own in kept]) for name in BESIDE]
    of_gaps = np.array([s.gaps.get(gap, _NO_GAP) for s in sequences for gap in GAPS], np.float64)
    return WorstColumns(
        np.array([[getattr(s, name) for name in _SEQUENCE] for s in sequences], np.int64).reshape(-1, len(_SEQUENCE)),
        of_gaps.reshape(-1, len(GAPS), len(_NO_GAP))[..., [GapFigures._fields.index(name) for name in _GAP]],
        _positions([s.positions for s in sequences]),
        np.array([[number, of_sequence.ranks] for number, of_sequence in kept], np.int64).reshape(-1, len(_KEPT)),
        _positions([of_sequence.tokens for _, of_sequence in kept]),
        [s.id for s in sequences],
        _told(beside),
    )


def _told(beside: Sequence[Numbers]) -> Sequence[Numbers]:
    """Nothing where no sequence has any."""
    return beside if any(numbers.counts.any() for numbers in beside) else ()


def sequences_of(found: Sequence[Array], ids: Sequence[str | None]) -> tuple[WorstSequence, ...]:
    """Read what WorstColumns.columns wrote; any error where it is something else."""
    if not found:
        return ()
    whole, of_gaps, *rest = found
    numbers, figures = whole.reshape(-1, len(_SEQUENCE)).tolist(), of_gaps.reshape(-1, len(GAPS), len(_GAP)).tolist()
    positions, tokens = _read(*rest[:3]), _read(*rest[4:7])
    beside = _read_beside(rest[7:], len(tokens))
    kept = {
        number: Columns(ranks, of_sequence, own)
        for (number, ranks), of_sequence, own in zip(
            rest[3].reshape(-1, len(_KEPT)).tolist(), tokens, beside, strict=True
        )
    }
    return tuple(
        WorstSequence(shard, index, size, _figures(of_sequence, here), here, id_, kept.get(number))
        for number, ((shard, index, size), of_sequence, here, id_) in enumerate(
            zip(numbers, figures, positions, ids or [None] * len(numbers), strict=True)
        )
    )


def _figures(of_sequence: Sequence[Sequence[float]], positions: Sequence[Position]) -> dict[str, GapFigures]:
    return {
        gap: GapFigures(int(tokens), abs_log_ratio_max(positions, gap), mean, k3)
        for gap, (tokens, mean, k3) in zip(GAPS, of_sequence, strict=True)
        if tokens == tokens
    }


def _positions(groups: Sequence[Sequence[Position]]) -> Positions:
    flat = [position for group in groups for position in group]
    return Positions(
        np.array([len(group) for group in groups], np.int64),
        np.array([position.position for position in flat], np.int64),
        np.array([position.logprobs for position in flat], np.float64).reshape(-1, len(LOGPROBS)),  # None becomes NaN
    )


def _read(numbers: Array, positions: Array, logprobs: Array) -> list[tuple[Position, ...]]:
    rows = logprobs.reshape(-1, len(LOGPROBS)).tolist()
    flat = []
    for position, (sampling, old, new) in zip(positions.tolist(), rows, strict=True):
        flat.append(Position(position, (_known(sampling), _known(old), _known(new))))
    ends = list(accumulate(numbers.tolist(), initial=0))
    if ends[-1] != len(flat):
        raise ValueError(f"{len(flat)} positions of {ends[-1]}")
    return [tuple(flat[begin:end]) for begin, end in pairwise(ends)]


def _numbers(name: str, kept: Sequence[Columns]) -> Numbers:
    counts, values = [], list[Value]()
    for own in kept:
        found = own.beside.get(name, ())
        values += found if isinstance(found, tuple) else [found]
        counts.append(1 if not isinstance(found, tuple) else len(found) + OF_TOKENS if name in own.beside else 0)
    is_whole = all(type(value) is int for value in values)
    return Numbers(np.array(counts, np.int64), np.array(values, np.int64 if is_whole else np.float64))


def _read_beside(found: Sequence[Array], number: int) -> list[dict[str, Value | tuple[Value, ...]]]:
    """By name, of each kept sequence; of more than is known here, that is left out."""
    read: list[dict[str, Value | tuple[Value, ...]]] = [{} for _ in range(number)]
    for name, counts, values in zip(BESIDE, found[::2], found[1::2], strict=False):
        flat, begin = [_known(value) for value in values.tolist()], 0
        for own, count in zip(read, counts.tolist(), strict=True):
            size = count if count < OF_TOKENS else count - OF_TOKENS
            if count:
                own[name] = flat[begin] if count == 1 else tuple(flat[begin : begin + size])
            begin += size
        if begin != len(flat):
            raise ValueError(f"{name}: {len(flat)} numbers of {begin}")
    return read


def _known(value: float) -> float | None:
    return value if value == value else None
