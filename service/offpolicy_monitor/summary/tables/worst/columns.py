"""The worst sequences in columns: what is stored of them, chosen and put together as it is.

Shapes: C sequences, K of them with raw tokens, P positions with log-probs, G gaps, V numbers beside them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final, Literal, NamedTuple, get_args

import numpy as np

from offpolicy_monitor.summary.arrays import Array
from offpolicy_monitor.summary.tables.ranking import first_of_each
from offpolicy_monitor.vocabulary import GAP_LOGPROBS, LOGPROBS

#: Sequences of a ranking. More are of less use than the bytes they take: nine rankings of five are some thirty.
MOST: Final = 5
#: Raw tokens kept of a sequence; of a longer one, those around its worst token.
MOST_TOKENS: Final = 4096

#: gap -> indices of its numerator and its denominator among LOGPROBS.
GAPS: Final[Mapping[str, tuple[int, int]]] = {
    gap: (LOGPROBS.index(above), LOGPROBS.index(below)) for gap, (above, below) in GAP_LOGPROBS.items()
}
GAP_INDEX: Final = {gap: index for index, gap in enumerate(GAPS)}
_ABOVE, _BELOW = (list(sides) for sides in zip(*GAPS.values(), strict=True))

#: What sequences are ranked by, the largest magnitude first; of the sum of k3 answers have the share.
By = Literal["abs_log_ratio_max", "log_geometric_ratio", "k3_share"]
Ranking = tuple[str, By]
RANKINGS: Final[tuple[Ranking, ...]] = tuple((gap, by) for gap in GAPS for by in get_args(By))

#: The largest float32; a figure beyond it is stored as this.
LARGEST: Final = float(np.finfo(np.float32).max)

#: What is kept of a sequence beside its log-probs, where it was sent: a number, or one for each raw token.
BESIDE: Final = ("advantages", "policy_versions", "rewards")
#: What is added to the count of numbers of tokens, so that none are not taken for a sequence without.
OF_TOKENS: Final = 2


class Column(NamedTuple):
    """A column of what is stored: its name, whether its numbers are whole, what it holds, its shape."""

    name: str
    is_whole: bool
    holds: str
    shape: tuple[str | int, ...]


_LOGPROBS: Final = ", ".join(LOGPROBS)
#: In the order in which they are stored; NaN stands for what is None. Max |d| is not among them: it is the largest at
#: the positions that are. What was sent beside log-probs is left out where no sequence has any, as older releases do.
COLUMNS: Final[tuple[Column, ...]] = (
    Column("whole", True, "shard, index among the shard's sequences as posted, tokens under the mask", ("C", 3)),
    Column("gaps", False, "by gap: valid tokens, mean d, the sum of k3, float32; NaN without a token", ("C", 3, 3)),
    Column("furthest/numbers", True, "how many positions have the largest |d| of some gap", ("C",)),
    Column("furthest/positions", True, "tokens before it in the sequence as sent, masked ones too; ascending", ("P",)),
    Column("furthest/logprobs", False, f"{_LOGPROBS}; NaN where not sent or not finite", ("P", 3)),
    Column("kept", True, "which of the C keeps raw tokens, while among the first so many of a ranking", ("K", 2)),
    Column("raw/numbers", True, "how many raw tokens are kept of it", ("K",)),
    Column("raw/positions", True, "as furthest/positions", ("P",)),
    Column("raw/logprobs", False, "as furthest/logprobs", ("P", 3)),
    *chain.from_iterable(
        (
            Column(f"{name}/counts", True, f"0 without {name}, 1 for its own, n + 2 for those of n tokens", ("K",)),
            Column(f"{name}/values", False, f"{name}, one after the other; NaN where not finite", ("V",)),
        )
        for name in BESIDE
    ),
)
_WITHOUT_BESIDE: Final = len(COLUMNS) - 2 * len(BESIDE)


class Positions(NamedTuple):
    """Positions with log-probs, group by group: `numbers` [groups] says how many each has, `positions` [P],
    `logprobs` [P, 3]."""

    numbers: Array
    positions: Array
    logprobs: Array

    def of(self, groups: Array) -> "Positions":
        """Those of some groups, in this order."""
        chosen = _entries(self.numbers, groups)
        return Positions(self.numbers[groups], self.positions[chosen], self.logprobs[chosen])

    @property
    def groups(self) -> Array:
        """[P] the group of each."""
        return np.repeat(np.arange(len(self.numbers)), self.numbers)


class Numbers(NamedTuple):
    """What was sent beside raw tokens: `counts` [K] and `values` [V], whole or fractions."""

    counts: Array
    values: Array

    @property
    def sizes(self) -> Array:
        """[K] how many values each kept sequence has."""
        return np.where(self.counts < OF_TOKENS, self.counts, self.counts - OF_TOKENS)

    def of(self, kept: Array) -> "Numbers":
        """Those of some kept sequences, in this order."""
        return Numbers(self.counts[kept], self.values[_entries(self.sizes, kept)])


def _read(column: Column, values: Array) -> Array:
    """A stored column; ValueError for one of other numbers. Whole ones are stored in as few bytes as hold them."""
    if column.is_whole:
        whole = values.astype(np.int64)
        if values.dtype.kind not in "iu" or whole.min(initial=0) < 0:
            raise ValueError(f"{column.name} of the worst sequences are no whole numbers from 0 on")
        values = whole
    elif values.dtype == np.uint64:  # which nobody writes, and no sum could hold
        raise ValueError(f"{column.name} of the worst sequences are no fractions")
    return values.reshape(-1, *(size for size in column.shape if isinstance(size, int)))


def _entries(sizes: Array, groups: Array) -> Array:
    """Where the entries of some groups stand among those of all, which follow each other and have these sizes."""
    wanted = sizes[groups]
    before = _begins(sizes)[groups] - _begins(wanted)
    return np.repeat(before, wanted) + np.arange(wanted.sum())


def _begins(sizes: Array) -> Array:
    """Where each of some groups begins, which follow each other and have these sizes."""
    return np.cumsum(sizes) - sizes


NO_POSITIONS: Final = Positions(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, len(LOGPROBS)), np.float32))
_NONE: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences in columns; `ids` are None where none were sent, `beside` is empty where nothing was."""

    whole: Array
    gaps: Array
    furthest: Positions
    kept: Array
    raw: Positions
    beside: Sequence[Numbers] = ()
    ids: Sequence[str | None] | None = None

    @classmethod
    def of_columns(cls, found: Sequence[Array], ids: Sequence[str | None]) -> "Sequences":
        """What `columns` gives, flat or not; ValueError where it is none, or columns do not fit each other."""
        if len(found) not in (_WITHOUT_BESIDE, len(COLUMNS)) or not isinstance(ids, list):
            raise ValueError(f"the worst sequences in {len(found)} columns, with ids {ids!r:.20}")
        whole, gaps, *rest = map(_read, COLUMNS, found)
        beside = map(Numbers, rest[7::2], rest[8::2])
        read = cls(whole, gaps, Positions(*rest[:3]), rest[3], Positions(*rest[4:7]), tuple(beside), ids or None)
        sizes = [(len(read), len(column)) for column in (gaps, read.furthest.numbers, ids or whole)]
        sizes += [(len(read.kept), len(column)) for column in (read.raw.numbers, *(own.counts for own in read.beside))]
        for of_groups in (read.furthest, read.raw):
            sizes += [(of_groups.numbers.sum(), len(column)) for column in of_groups[1:]]
        sizes += [(own.sizes.sum(), len(own.values)) for own in read.beside]
        of_kept = read.kept[:, 0]
        if any(size != length for size, length in sizes):
            raise ValueError("columns of the worst sequences that do not fit each other")
        if len(np.unique(of_kept)) < len(of_kept) or (of_kept >= len(read)).any():
            raise ValueError("raw tokens of no sequence, or twice of one")
        return read

    @property
    def columns(self) -> list[Array]:
        """By COLUMNS; the last are left out where no sequence has any of BESIDE."""
        beside = chain.from_iterable(self.beside)
        return [self.whole, self.gaps, *self.furthest, self.kept, *self.raw, *beside]

    def __len__(self) -> int:
        return len(self.whole)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequences):
            return NotImplemented
        pairs = zip(self.columns, other.columns, strict=False)
        same = all(np.array_equal(mine, theirs, equal_nan=mine.dtype.kind == "f") for mine, theirs in pairs)
        return same and len(self.beside) == len(other.beside) and self.told_ids == other.told_ids

    __hash__ = None

    @property
    def told_ids(self) -> Sequence[str | None]:
        """The ids; none where no sequence has one."""
        return self.ids if self.ids is not None and any(id_ is not None for id_ in self.ids) else []

    @cached_property
    def values(self) -> Array:
        """[RANKINGS, C] what rankings compare; 0 where the gap has no valid token in a sequence."""
        figures = np.concatenate([self.furthest_of_gaps[..., None], np.abs(self.gaps[..., 1:])], 2, dtype=np.float64)
        figures[~self.has_gaps] = 0.0
        return figures.reshape(len(self), len(RANKINGS)).T

    @property
    def has_gaps(self) -> Array:
        """[C, G] whether it has a valid token of each gap."""
        return ~np.isnan(self.gaps[..., 0])

    @cached_property
    def furthest_of_gaps(self) -> Array:
        """[C, G] float32: the largest |d| of each gap, 0 for none."""
        numbers, logprobs = self.furthest.numbers, self.furthest.logprobs.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            apart = np.fmax(np.abs(logprobs[:, _ABOVE] - logprobs[:, _BELOW]), 0.0)  # 0 where one is NaN
        most = np.zeros((len(self), len(GAPS)))
        filled = numbers > 0
        if filled.any():
            most[filled] = np.maximum.reduceat(apart, _begins(numbers)[filled], axis=0)
        return np.minimum(most, LARGEST).astype(np.float32)

    def first(self, gap: str, by: By) -> Array:
        """The rows that stand first in a ranking, worst first."""
        ranked, there = first_of_each(self.values[[RANKINGS.index((gap, by))]], MOST)
        return ranked[there]

    def of(self, rows: Array, kept: Array | None = None) -> "Sequences":
        """Those of some rows, in this order, with the raw tokens that they have, or of them those `kept` [K]."""
        number = np.full(len(self), -1)
        number[rows] = np.arange(len(rows))
        into = number[self.kept[:, 0]]
        chosen = np.flatnonzero(into >= 0 if kept is None else (into >= 0) & kept)
        chosen = chosen[np.argsort(into[chosen])]
        return Sequences(
            self.whole[rows],
            self.gaps[rows],
            self.furthest.of(rows),
            np.column_stack([into[chosen], self.kept[chosen, 1]]),
            self.raw.of(chosen),
            told([numbers.of(chosen) for numbers in self.beside]),
            None if self.ids is None else [self.ids[row] for row in rows.tolist()],
        )


def told(beside: Sequence[Numbers]) -> Sequence[Numbers]:
    """Nothing where no sequence has any."""
    return beside if any(numbers.counts.any() for numbers in beside) else ()


NO_SEQUENCES: Final = Sequences(
    np.zeros((0, 3), np.int64), np.zeros((0, len(GAPS), 3)), NO_POSITIONS, np.zeros((0, 2), np.int64), NO_POSITIONS
)


def together(parts: Sequence[Sequences]) -> Sequences:
    """All sequences of the parts, one after the other."""
    if not parts:
        return NO_SEQUENCES
    kept = np.concatenate([part.kept for part in parts])
    kept[:, 0] += np.repeat(np.cumsum([0, *map(len, parts[:-1])]), [len(part.kept) for part in parts])
    ids = [part.ids or [None] * len(part) for part in parts] if any(part.ids for part in parts) else None
    return Sequences(
        np.concatenate([part.whole for part in parts]),
        np.concatenate([part.gaps for part in parts], dtype=np.float64),
        _positions([part.furthest for part in parts]),
        kept,
        _positions([part.raw for part in parts]),
        _beside(parts),
        None if ids is None else list(chain.from_iterable(ids)),
    )


def _positions(parts: Sequence[Positions]) -> Positions:
    numbers, positions, logprobs = zip(*parts, strict=True)
    filled = [part for part in logprobs if len(part)]
    return Positions(
        np.concatenate(numbers), np.concatenate(positions), np.concatenate(filled) if filled else NO_POSITIONS.logprobs
    )


def _beside(parts: Sequence[Sequences]) -> Sequence[Numbers]:
    """Of each of BESIDE; nothing where no part has any."""
    if not any(part.beside for part in parts):
        return ()
    found = []
    for k in range(len(BESIDE)):
        own = [part.beside[k] if part.beside else Numbers(np.zeros(len(part.kept), np.int64), _NONE) for part in parts]
        values = [numbers.values for numbers in own if len(numbers.values)]
        found.append(Numbers(np.concatenate([numbers.counts for numbers in own]), np.concatenate(values or [_NONE])))
    return found


class Ranked(NamedTuple):
    """Sequences of a batch that stand first in some ranking, as a form of measuring finds them.

    sequences  [C] int64, ascending: their indices in the batch
    sizes      [C] int64: their tokens
    figures    [C, G, 3] as the row `gaps`
    kept       [K] int64, ascending: which of the C keep their raw tokens
    """

    sequences: Array
    sizes: Array
    figures: Array
    kept: Array


class Tokens(NamedTuple):
    """What is kept of the tokens of chosen sequences, as a form of measuring finds it.

    furthest  of each sequence, those at which the policies of some gap differ most
    raw       of each of the K
    spans     [K, 2] where these begin and end among the tokens of the batch
    """

    furthest: Positions
    raw: Positions
    spans: Array
