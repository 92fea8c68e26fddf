"""A part: the tokens of batches of one kind that are valid for the same gaps, and how they are measured.

What depends on the rows that were asked for, and on which arrays were sent, is made once and kept; so is the room that
the pass works in, of the parts that were measured last (rooms). Knows no batch.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from offpolicy_monitor.fused import arrays, sequences
from offpolicy_monitor.fused.ahead import COLUMNS
from offpolicy_monitor.fused.arrays import Bounds, Doubles, Integers, Plan
from offpolicy_monitor.fused.bands import ahead_of, compares, sequence_bounds, token_bounds
from offpolicy_monitor.fused.bits import STRIDE
from offpolicy_monitor.fused.dimensions import LAG, LENGTH, POSITION, SIGN, TURN, Dimension, constant
from offpolicy_monitor.fused.held import Held, hold
from offpolicy_monitor.fused.results import WHOLE, Flats, Result, Size, flat_lengths, result_of
from offpolicy_monitor.fused.rooms import Rooms
from offpolicy_monitor.fused.sequences import SequencePlan
from offpolicy_monitor.fused.token import BIG
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.methods.catalogue import kept_at
from offpolicy_monitor.methods.curve import OUTWARD_SCORES
from offpolicy_monitor.methods.rule import looks_ahead
from offpolicy_monitor.summary import cells, histogram
from offpolicy_monitor.summary.evaluation import Detail
from offpolicy_monitor.summary.tables.buckets import MU_BUCKETS
from offpolicy_monitor.vocabulary import GAPS

#: Parts at hand: those of a run's shards come back with every step.
REMEMBERED: Final = 16
#: Sets of rows at hand.
ASKED: Final = 16
#: Bytes of room at hand that is not in use: a part of the presets takes some four million.
MOST_SPARE: Final = 64 << 20

_SPLITS: Final = np.minimum(histogram.splits(), BIG).astype(np.float32)
_TOKEN_BINS: Final = cells.token_bins().astype(np.uint8)
_MU_EDGES: Final = np.array([math.log(float(bucket)) for bucket in MU_BUCKETS[1:]], np.float32)
_MAGNITUDES: Final = np.ascontiguousarray(cells.SEQUENCE_BINS.magnitudes)


class Kind(NamedTuple):
    """What batches have in common that are measured in the same way.

    advantages, turns, versions   "sequence" or "token", by what has one each; "" where they make no difference
    constants                     dimensions in which a whole shard is one bucket
    """

    gaps: tuple[str, ...]
    sampling: bool
    advantages: str
    turns: str
    versions: str
    grids: bool
    positive: bool
    constants: int

    @property
    def of_runs(self) -> list[Dimension]:
        """The dimensions of runs.runs_of."""
        more = ((LAG, self.versions), (TURN, self.turns))
        return [POSITION, *(dimension for dimension, of in more if of == "token")]

    @property
    def of_sequences(self) -> list[Dimension]:
        """The dimensions of runs.buckets_of."""
        more = ((SIGN, self.advantages), (TURN, self.turns), (LAG, self.versions))
        own = [dimension for dimension, of in more if of == "sequence"]
        return [LENGTH, *own, *map(constant, range(self.constants))]


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows that apply to a kind of batch, and their numbers: `on_tokens` and `on_sequences` index `rows`.

    Rules that look ahead are among those on tokens as rules that drop nothing; `ahead` has which, and what they compare
    (fused.ahead). `whatif` asks for what-if cells, other anchors and densities, `detail` for what is decided about each
    sequence, or each token.
    """

    rows: Sequence[MethodRow]
    tokens: Bounds
    on_tokens: Sequence[int]
    sequences: Bounds
    on_sequences: Sequence[int]
    ahead: Doubles
    whatif: bool = True
    detail: Detail = "none"

    @property
    def numbered(self) -> Iterator[tuple[MethodRow, int, bool]]:
        """Each row with its number among those on tokens, or among those on sequences, and which of the two it is."""
        of_tokens = {index: k for k, index in enumerate(self.on_tokens)}
        of_sequences = {index: k for k, index in enumerate(self.on_sequences)}
        for index, row in enumerate(self.rows):
            found = of_tokens.get(index)
            yield (row, of_sequences[index], False) if found is None else (row, found, True)

    @cached_property
    def specs(self) -> Mapping[str, Mapping[str, Any]]:
        """What is shown with the figures of each."""
        return {row.name: row.spec for row in self.rows}

    @classmethod
    def of(cls, rows: Sequence[MethodRow], whatif: bool = True, detail: Detail = "none") -> "Rows":
        """Put rows into numbers."""
        of_tokens = [index for index, row in enumerate(rows) if row.rule.of_tokens]
        of_sequences = [index for index, row in enumerate(rows) if not row.rule.of_tokens]
        ahead = [(k, *ahead_of(rows[index].rule)) for k, index in enumerate(of_tokens) if looks_ahead(rows[index].rule)]
        return cls(
            rows, token_bounds([rows[index] for index in of_tokens], whatif), of_tokens,
            sequence_bounds([rows[index] for index in of_sequences], whatif), of_sequences,
            np.array(ahead, np.float64).reshape(-1, COLUMNS), whatif, detail,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Asked:
    """Rows as they were asked for; one object for equal ones."""

    rows: Sequence[MethodRow]


class Known:
    """The rows that were asked for last, `most` sets of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._all: tuple[Asked, ...] = ()

    def find(self, rows: Sequence[MethodRow]) -> Asked:
        """The one object for rows that equal these."""
        for one in self._all:
            if one.rows is rows or one.rows == rows:
                return one
        one = Asked(rows)
        self._all = (one, *self._all[: self._most - 1])
        return one


asked = Known(ASKED).find


@lru_cache(ASKED)
def are_known(of: Asked, gaps: tuple[str, ...]) -> bool:
    """Whether the pass has every score that these rows compare, and that what-if keeps of these gaps beside them."""
    known = {*arrays.NAMES, *sequences.NAMES, *OUTWARD_SCORES, *(f"{score}_min" for score in OUTWARD_SCORES)}
    return all(compares(row) for row in of.rows) and all(_kept_of(of.rows, gap, gaps).keys() <= known for gap in gaps)


def _kept_of(rows: Sequence[MethodRow], gap: str, sent: Collection[str]) -> Mapping[str, frozenset[str]]:
    """By score, what what-if keeps of a gap where these were sent."""
    return kept_at(gap, sent, {row.method.name for row in rows if row.gap == gap})


@lru_cache(ASKED)
def applicable(of: Asked, gaps: tuple[str, ...], advantages: bool) -> Rows:
    """The rows whose inputs were sent."""
    return Rows.of([row for row in of.rows if row.applies(gaps, advantages)])


class Workspace(NamedTuple):
    """Room for the pass over one part: a Result of zeros, the same with what else the pass needs, and [2, ..] where a
    summary's whole numbers are not zero, and what they are there (moves.py)."""

    flats: Flats
    result: Result
    held: Held
    filled: Integers

    @classmethod
    def of(cls, size: Size, plan: Plan, rows: Rows) -> "Workspace":
        """A new one."""
        numbers, counts = flat_lengths(size)
        flats = Flats(np.zeros(numbers), np.zeros(counts + STRIDE, np.int32))  # STRIDE at a time are read
        filled = np.empty((2, numbers + counts + len(WHOLE)), np.int64)
        result = result_of(size, flats)
        held = hold(plan, rows.tokens, rows.sequences, rows.ahead, arrays.block(), result)
        return cls(flats, result, held, filled)

    @property
    def nbytes(self) -> int:
        """Most of what it takes."""
        return sum(array.nbytes for array in (*self.flats, self.filled))


@dataclass(frozen=True, eq=False)
class Part:
    """A part of batches of a kind. `gaps` are those whose figures it has; `joint` says that its tokens have all three,
    `alone` that it has nothing but the figures of all three.

    token_cells, sequence_cells   (gap, score) of each what-if cell
    measures                      what is kept of each score of a gap (methods.catalogue.kept_at)
    """

    kind: Kind
    rows: Rows
    gaps: tuple[str, ...]
    joint: bool
    alone: bool

    @classmethod
    @lru_cache(REMEMBERED)
    def of(cls, kind: Kind, rows: Rows, gaps: tuple[str, ...], joint: bool, alone: bool) -> "Part":
        """One object for each."""
        return cls(kind, rows, gaps, joint, alone)

    @cached_property
    def measures(self) -> Mapping[str, Mapping[str, frozenset[str]]]:
        """By gap and score, what what-if keeps."""
        return {gap: self._kept(gap) for gap in self.gaps} if self.rows.whatif and not self.alone else {}

    def _kept(self, gap: str) -> Mapping[str, frozenset[str]]:
        return _kept_of(self.rows.rows, gap, self.kind.gaps)

    @cached_property
    def outward(self) -> Sequence[tuple[str, str]]:
        """What-if cells of scores of tokens that move outward, which are made from another look at the tokens."""
        return [(gap, name) for gap, kept in self.measures.items() for name in kept if name in OUTWARD_SCORES]

    @cached_property
    def token_cells(self) -> Sequence[tuple[str, str]]:
        """By arrays.NAMES."""
        return [(gap, name) for gap, kept in self.measures.items() for name in arrays.NAMES if name in kept]

    @cached_property
    def sequence_cells(self) -> Sequence[tuple[str, str]]:
        """By sequences.NAMES."""
        return [(gap, name) for gap, kept in self.measures.items() for name in kept if name in sequences.NAMES]

    @cached_property
    def size(self) -> Size:
        """Of its Result."""
        rules = len(self.rows.on_tokens), len(self.rows.on_sequences)
        dimensions = len(self.kind.of_runs), len(self.kind.of_sequences)
        return Size(*rules, *dimensions, len(self.token_cells), len(self.sequence_cells))

    @cached_property
    def plan(self) -> Plan:
        """What is made of the tokens."""
        bounds, kind = self.rows.tokens, self.kind
        of_band = np.repeat(np.arange(len(bounds.gap)), np.diff(bounds.ends))
        divergent = np.unique(of_band[np.isin(bounds.score, (arrays.AWAY, arrays.LARGER))])
        looked_at = {*bounds.gap[divergent].tolist(), *(bounds.anchor[divergent].tolist() if self.joint else ())}
        looked_at |= {GAPS.index(gap) for gap, score in self.token_cells if score.startswith("kl_")}
        flags = np.array([gap in self.gaps for gap in GAPS])
        divergences = np.array([gap in looked_at for gap in range(len(GAPS))])
        return Plan(
            flags, divergences & flags, _pairs(self.token_cells, arrays.NAMES), self.joint, self.alone,
            bool(kind.advantages), kind.advantages == "token", kind.grids,
            bool((bounds.score == arrays.MAGNITUDE).any()), kind.positive, self.rows.whatif, _SPLITS, _TOKEN_BINS,
            _MU_EDGES,
        )  # fmt: skip

    def sequence_plan(self, buckets: Integers) -> SequencePlan:
        """What is made of sequences that stand in these buckets."""
        return SequencePlan(self._sequence_pairs, buckets, _MAGNITUDES)

    @cached_property
    def _sequence_pairs(self) -> Integers:
        return _pairs(self.sequence_cells, sequences.NAMES)

    def workspace(self) -> Workspace:
        """Room that is the caller's until it is given back, with zeros."""
        return SPARE.taken(self) or Workspace.of(self.size, self.plan, self.rows)

    def give_back(self, room: Workspace) -> None:
        """Let the next batch of the part have it."""
        SPARE.give(self, room, room.nbytes)


#: Room of parts that nobody uses now.
SPARE: Final[Rooms[Part, Workspace]] = Rooms(MOST_SPARE)


def _pairs(pairs: Sequence[tuple[str, str]], scores: Sequence[str]) -> Integers:
    return np.array([(GAPS.index(gap), scores.index(name)) for gap, name in pairs], np.int64).reshape(-1, 2)
