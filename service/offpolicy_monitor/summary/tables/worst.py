"""Worst: the sequences that stand first in some ranking of a gradient step, with what is needed to find them again.

A ranking is of one gap by one figure: max |d|, |log geometric ratio|, or the sum of k3, whose share of the step's total
is made when it is read. A sequence is kept once, whatever ranks it. A monoid like everything kept: `merge` is
commutative and associative exactly, since equal values are ordered by shard and index, and merging compares no sums.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from offpolicy_monitor.vocabulary import GAP_LOGPROBS
from offpolicy_monitor.vocabulary import LOGPROBS as LOGPROBS

#: Sequences of a ranking. More are of less use than the bytes they take: nine rankings of five are some thirty.
MOST: Final = 5

#: What sequences are ranked by, the largest magnitude first; each is a field of GapFigures.
RANKED_BY: Final = ("abs_log_ratio_max", "log_geometric_ratio", "k3_sum")

#: gap -> indices of its numerator and its denominator among LOGPROBS.
GAPS: Final[Mapping[str, tuple[int, int]]] = {
    gap: (LOGPROBS.index(above), LOGPROBS.index(below)) for gap, (above, below) in GAP_LOGPROBS.items()
}

#: The largest float32; a figure beyond it is stored as this.
LARGEST: Final = float(np.finfo(np.float32).max)

Logprobs = tuple[float | None, float | None, float | None]
Ranking = tuple[str, str]


class GapFigures(NamedTuple):
    """A sequence's figures over its valid tokens of one gap, float32: max |d| and mean d in nats, and the sum of k3."""

    tokens: int
    abs_log_ratio_max: float
    log_geometric_ratio: float
    k3_sum: float


class Position(NamedTuple):
    """Log-probs at one position of a sequence as sent, counted from 0; None where not sent or not finite."""

    position: int
    logprobs: Logprobs

    def log_ratio(self, gap: str) -> float | None:
        """d of a gap, nats; None where a log-prob is missing."""
        above, below = GAPS[gap]
        numerator, denominator = self.logprobs[above], self.logprobs[below]
        return None if numerator is None or denominator is None else numerator - denominator


#: What is kept of a sequence beside its log-probs, where it was sent: a number, or one for each raw token.
BESIDE: Final = ("advantages", "policy_versions", "rewards")
Value = float | None
Beside = Mapping[str, Value | tuple[Value, ...]]


class Columns(NamedTuple):
    """Raw tokens of a sequence, kept while it stands among the first `ranks` of some ranking.

    beside  by name of BESIDE the sequence's own number, or the tokens' numbers; None for what is not finite
    """

    ranks: int
    tokens: tuple[Position, ...]
    beside: Beside = MappingProxyType({})


@dataclass(frozen=True)
class WorstSequence:
    """A sequence: its shard, its index among the shard's sequences as posted, tokens under the mask, figures by gap.

    `positions` has the token of the largest |d| of each gap, in order.
    """

    shard: int
    index: int
    tokens: int
    gaps: Mapping[str, GapFigures]
    positions: tuple[Position, ...] = ()
    id: str | None = None
    columns: Columns | None = None

    @cached_property
    def order(self) -> tuple[object, ...]:
        """Decides between equal values. The figures matter only where steps are merged, which have equal indices."""
        return self.shard, self.index, self.tokens, tuple(sorted(self.gaps.items()))

    def value(self, ranking: Ranking) -> float:
        """What a ranking compares; 0 where the gap has no valid token in this sequence."""
        gap, by = ranking
        return abs(getattr(self.gaps[gap], by)) if gap in self.gaps else 0.0


RANKINGS: Final[tuple[Ranking, ...]] = tuple((gap, by) for gap in GAPS for by in RANKED_BY)


@dataclass(frozen=True, eq=False)
class Worst:
    """Sequences in the order of their shards and indices; none of them is in no ranking.

    They are read, and the worst of several found, when somebody asks for them: most merges are judged without.
    """

    sources: tuple[Callable[[], tuple[WorstSequence, ...]], ...] = ()

    @classmethod
    def of(cls, sequences: Iterable[WorstSequence]) -> "Worst":
        """The worst among these."""
        found = worst_of(sequences)
        return cls.later(lambda: found) if found else cls()

    @classmethod
    def later(cls, read: Callable[[], tuple[WorstSequence, ...]]) -> "Worst":
        """Those that `read` gives, in order."""
        return cls((read,))

    @cached_property
    def sequences(self) -> tuple[WorstSequence, ...]:
        """The sequences, in order."""
        found = [read() for read in self.sources]
        return found[0] if len(found) == 1 else worst_of(chain.from_iterable(found))

    def merge(self, other: "Worst") -> "Worst":
        """The worst of both."""
        return Worst((*self.sources, *other.sources))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Worst) and self.sequences == other.sequences

    __hash__ = None  # type: ignore[assignment]


def worst_of(sequences: Iterable[WorstSequence]) -> tuple[WorstSequence, ...]:
    """The worst among these, in order."""
    candidates = {sequence.order: sequence for sequence in sequences}
    best: dict[tuple[object, ...], int] = {}
    for ranking in RANKINGS:
        for rank, sequence in enumerate(ranked(candidates.values(), ranking)):
            best[sequence.order] = min(rank, best.get(sequence.order, rank))
    kept = [_at(candidates[order], rank) for order, rank in best.items()]
    return tuple(sorted(kept, key=attrgetter("order")))


def ranked(sequences: Iterable[WorstSequence], ranking: Ranking) -> list[WorstSequence]:
    """The first of a ranking, worst first; a sequence without any difference, value 0, is in none."""
    found = [(-value, sequence.order, sequence) for sequence in sequences if (value := sequence.value(ranking)) > 0]
    return [sequence for _, _, sequence in sorted(found, key=lambda entry: entry[:2])[:MOST]]


def abs_log_ratio_max(positions: Iterable[Position], gap: str) -> float:
    """The largest |d| at these positions, float32; 0 where there is none."""
    magnitudes = (abs(d) for position in positions if (d := position.log_ratio(gap)) is not None)
    return float(np.float32(min(max(magnitudes, default=0.0), LARGEST)))


def _at(sequence: WorstSequence, rank: int) -> WorstSequence:
    """The sequence at its best rank, from 0: ranks are only lost by merging, and with them raw tokens."""
    columns = sequence.columns
    return sequence if columns is None or rank < columns.ranks else replace(sequence, columns=None)
