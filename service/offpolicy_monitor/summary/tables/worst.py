"""Worst: the sequences that stand first in some ranking of a gradient step, with what is needed to find them again.

A ranking is of one gap by one figure: max |d|, |log geometric ratio|, or the sum of k3, whose share of the step's total
is made when it is read. A sequence is kept once, whatever ranks it. From the batch to the answer they are columns of
numbers: ROWS, one after the other. A monoid like everything kept: `Worst.merge` is commutative and associative exactly,
since equal values are ordered by shard and index, and merging compares no sums.

Shapes: C sequences, K of them with raw tokens, P positions with log-probs, G gaps.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

import numpy as np

from offpolicy_monitor.summary.arrays import Array
from offpolicy_monitor.summary.rows import Row, count, number
from offpolicy_monitor.summary.sums import finite, fraction
from offpolicy_monitor.summary.tables.ranking import first_of_each, marked
from offpolicy_monitor.vocabulary import GAP_LOGPROBS, LOGPROBS

if TYPE_CHECKING:
    from offpolicy_monitor.summary.step import StepSummary

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

_LOGPROBS: Final = ", ".join(LOGPROBS)
#: The columns in which they are stored; NaN stands for what is None. Max |d| is not among them: it is the largest at
#: the positions that are. What was sent beside log-probs is left out where no sequence has any, as older releases do.
ROWS: Final[tuple[Row, ...]] = (
    count("whole", "shard, index among the shard's sequences as posted, tokens under the mask", "C", 3),
    number("gaps", "by gap: valid tokens, their mean d, the sum of their k3, float32; NaN without a token", "C", 3, 3),
    count("furthest/numbers", "how many positions have the largest |d| of some gap", "C"),
    count("furthest/positions", "tokens before it in the sequence as sent, masked ones too; ascending", "P"),
    number("furthest/logprobs", f"{_LOGPROBS}; NaN where not sent or not finite", "P", 3),
    count("kept", "which of the C keeps raw tokens, while it stands among the first so many of a ranking", "K", 2),
    count("raw/numbers", "how many raw tokens are kept of it", "K"),
    count("raw/positions", "as furthest/positions", "P"),
    number("raw/logprobs", "as furthest/logprobs", "P", 3),
    *chain.from_iterable(
        (
            count(f"{name}/counts", f"0 without {name}, 1 for the sequence's own, n + 2 for those of n tokens", "K"),
            number(f"{name}/values", f"{name}, one after the other; NaN where not finite", "V"),
        )
        for name in BESIDE
    ),
)
_WITHOUT_BESIDE: Final = len(ROWS) - 2 * len(BESIDE)


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
        return np.where(self.counts < OF_TOKENS, self.counts, self.counts.astype(np.int64) - OF_TOKENS)

    def of(self, kept: Array) -> "Numbers":
        """Those of some kept sequences, in this order."""
        return Numbers(self.counts[kept], self.values[_entries(self.sizes, kept)])


def _entries(sizes: Array, groups: Array) -> Array:
    """Where the entries of some groups stand among those of all, which follow each other and have these sizes."""
    wanted = sizes[groups]
    before = _begins(sizes)[groups] - _begins(wanted)
    return np.repeat(before, wanted) + np.arange(int(wanted.sum()))


def _begins(sizes: Array) -> Array:
    """Where each of some groups begins, which follow each other and have these sizes."""
    return np.cumsum(sizes, dtype=np.int64) - sizes.astype(np.int64)


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
        """What `columns` gives; ValueError where they do not fit each other."""
        if len(found) not in (_WITHOUT_BESIDE, len(ROWS)):
            raise ValueError(f"the worst sequences in {len(found)} columns")
        whole, gaps, *rest = found
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
        """By ROWS; the last are left out where no sequence has any of BESIDE."""
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

    __hash__ = None  # type: ignore[assignment]

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


@dataclass(frozen=True, eq=False)
class Worst:
    """The worst of several: read, and found among all, when somebody asks for them. Most merges are judged without.

    numbers  of those that are stored, the numbers that their columns have
    """

    sources: tuple[Callable[[], Sequences], ...] = ()
    numbers: int = 0

    @classmethod
    def of(cls, found: Sequences) -> "Worst":
        """These, of which each is in some ranking."""
        return cls((lambda: found,)) if len(found) else cls()

    @cached_property
    def sequences(self) -> Sequences:
        """The sequences, by shard and index, none of them in no ranking; of one source as they are there."""
        parts = [read() for read in self.sources]
        return parts[0] if len(parts) == 1 else worst_of(together(parts))

    def merge(self, other: "Worst") -> "Worst":
        """The worst of both."""
        return Worst((*self.sources, *other.sources), self.numbers + other.numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Worst) and self.sequences == other.sequences

    __hash__ = None  # type: ignore[assignment]


def together(parts: Sequence[Sequences]) -> Sequences:
    """All sequences of the parts, one after the other."""
    if not parts:
        return NO_SEQUENCES
    kept = _column([part.kept for part in parts])
    kept[:, 0] += np.repeat(np.cumsum([0, *map(len, parts[:-1])]), [len(part.kept) for part in parts])
    ids = [part.ids or [None] * len(part) for part in parts] if any(part.ids for part in parts) else None
    return Sequences(
        _column([part.whole for part in parts]),
        np.concatenate([part.gaps for part in parts], dtype=np.float64),
        _positions([part.furthest for part in parts]),
        kept,
        _positions([part.raw for part in parts]),
        _beside(parts),
        None if ids is None else list(chain.from_iterable(ids)),
    )


def _column(parts: Sequence[Array]) -> Array:
    """The parts of a column, each of which may be stored in as few bytes as hold it, one after the other."""
    return np.concatenate(parts, dtype=np.int64, casting="unsafe")


def _positions(parts: Sequence[Positions]) -> Positions:
    numbers, positions, logprobs = zip(*parts, strict=True)
    filled = [part for part in logprobs if len(part)]
    return Positions(_column(numbers), _column(positions), np.concatenate(filled) if filled else NO_POSITIONS.logprobs)


def _beside(parts: Sequence[Sequences]) -> Sequence[Numbers]:
    """Of each of BESIDE; nothing where no part has any."""
    if not any(part.beside for part in parts):
        return ()
    found = []
    for k in range(len(BESIDE)):
        own = [part.beside[k] if part.beside else Numbers(np.zeros(len(part.kept)), _NONE) for part in parts]
        values = [numbers.values for numbers in own if len(numbers.values)]
        found.append(Numbers(_column([numbers.counts for numbers in own]), np.concatenate(values or [_NONE])))
    return found


def worst_of(found: Sequences) -> Sequences:
    """The worst among these, by shard and index; of those that are equal in all of their figures one.

    Where two have the same shard and index, as those of merged steps, their figures decide. Raw tokens are lost with
    the rank for which they were kept: ranks are only lost by merging.
    """
    shards, indices = found.whole[:, 0], found.whole[:, 1]
    order = np.lexsort((indices, shards))
    if ((np.diff(shards[order]) == 0) & (np.diff(indices[order]) == 0)).any():
        figures = np.nan_to_num(found.gaps.reshape(len(found), -1), nan=-1.0)
        order = np.unique(np.column_stack([found.whole, figures, found.furthest_of_gaps]), axis=0, return_index=True)[1]
    ranked, there = first_of_each(found.values[:, order], MOST)
    best = np.full(len(found), MOST)
    for rank in reversed(range(ranked.shape[1])):
        best[order[ranked[there[:, rank], rank]]] = rank
    return found.of(order[marked(ranked[there], len(order))], best[found.kept[:, 0]] < found.kept[:, 1])


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


class OfStep(NamedTuple):
    """The worst sequences of a gradient step, and the sum of k3 of that step by gap."""

    step: int
    minibatch: int
    sequences: Sequences
    totals: Mapping[str, float]

    @classmethod
    def of(cls, step: int, minibatch: int, summary: "StepSummary") -> "OfStep":
        """Those of a summary."""
        totals = {name: found.sums.get("k3", 0.0) for name, found in summary.gaps.items()}
        return cls(step, minibatch, summary.worst.sequences, totals)


class Standing(NamedTuple):
    """A sequence among those of its step, with its ranks, from 1, the best first."""

    step: OfStep
    row: int
    ranks: Sequence[tuple[int, Ranking]]

    @property
    def sequence(self) -> Sequences:
        """It alone."""
        return self.step.sequences.of(np.array([self.row]))

    def answer(self) -> dict[str, Any]:
        """JSON-ready; `id` is None and `columns` is left out where there are none."""
        one, (step, minibatch, _, totals) = self.sequence, self.step
        [(shard, index, tokens)] = one.whole.tolist()
        figures = zip(GAPS, one.gaps[0].tolist(), one.furthest_of_gaps[0].tolist(), strict=True)
        positions = map(_position, one.furthest.positions.tolist(), one.furthest.logprobs)
        found = {
            "step": step,
            "minibatch": minibatch,
            "shard": shard,
            "index": index,
            "id": one.ids[0] if one.ids else None,
            "tokens": tokens,
            "by": [{"gap": gap, "by": by, "rank": rank} for rank, (gap, by) in self.ranks],
            "gaps": {gap: _gap(own, most, totals.get(gap, 0.0)) for gap, own, most in figures if own[0] == own[0]},
            "positions": sorted(positions, key=_largest, reverse=True),
            **({"columns": _columns(one)} if len(one.kept) else {}),
        }
        return {name: finite(value) for name, value in found.items()}


def first_of(found: Sequence[OfStep], gap: str | None = None, by: str | None = None) -> list[Standing]:
    """Those that stand in the rankings of a gap, of a figure, or of all, by their best rank; steps in their order.

    Those of equal ranks stand in the order of RANKINGS. Of several steps a ranking by k3 is by its sum, so that a
    quiet step, where much is the share of few, does not hide a loud one.
    """
    wanted, ranked, there = _ranked(found, gap, by)
    ranks: dict[int, list[tuple[int, int]]] = {}
    for (index, rank), row in np.ndenumerate(ranked):
        if there[index, rank]:
            ranks.setdefault(int(row), []).append((rank + 1, wanted[index]))
    rows = [(of_step, row) for of_step in found for row in range(len(of_step.sequences))]
    ordered = sorted(ranks.items(), key=lambda entry: min(entry[1]))
    return [Standing(*rows[row], [(rank, RANKINGS[index]) for rank, index in sorted(own)]) for row, own in ordered]


def still_first(found: Sequence[OfStep], gap: str | None = None, by: str | None = None) -> list[OfStep]:
    """The steps of which `first_of` has sequences, with these alone."""
    _, ranked, there = _ranked(found, gap, by)
    left, rows, begin = [], np.unique(ranked[there]), 0
    for of_step in found:
        own, begin = (
            rows[(rows >= begin) & (rows < begin + len(of_step.sequences))] - begin,
            begin + len(of_step.sequences),
        )
        if len(own):
            left.append(of_step._replace(sequences=of_step.sequences.of(own)))
    return left


def _ranked(found: Sequence[OfStep], gap: str | None, by: str | None) -> tuple[list[int], Array, Array]:
    """Which rankings are asked for, and the first of each among the sequences of all steps."""
    wanted = [index for index, ranking in enumerate(RANKINGS) if gap in (None, ranking[0]) and by in (None, ranking[1])]
    values = [of_step.sequences.values[wanted] for of_step in found]
    return wanted, *first_of_each(np.concatenate(values, 1) if values else np.zeros((len(wanted), 0)), MOST)


def _gap(figures: Sequence[float], most: float, total: float) -> dict[str, Any]:
    """The figures that /v1/evaluate has of a sequence, and its share of the step's k3; None where that is 0."""
    tokens, mean, k3 = figures
    share = fraction(k3, total)
    return {
        "tokens": int(tokens),
        "log_geometric_ratio": mean,
        "log_product_ratio": mean * tokens,
        "abs_log_ratio_max": most,
        "k1": -mean,
        "k3": k3 / tokens,
        "k3_share": None if share is None else min(share, 1.0),  # both are rounded, each in its own way
    }


def _position(position: int, logprobs: Array) -> dict[str, Any]:
    known = _known(logprobs)
    pairs = {gap: (known[above], known[below]) for gap, (above, below) in GAPS.items()}
    ratios = {gap: above - below for gap, (above, below) in pairs.items() if above is not None and below is not None}
    return {"position": position, **dict(zip(LOGPROBS, known, strict=True)), "log_ratio": ratios}


def _largest(position: Mapping[str, Any]) -> float:
    """The largest |d| at a position."""
    return max(map(abs, position["log_ratio"].values()), default=0.0)


def _columns(one: Sequences) -> dict[str, Any]:
    """One list a log-prob, None where it was not finite, and the tokens' positions; without what was not sent.

    Beside them lists, or the sequence's one number.
    """
    logprobs = dict(zip(LOGPROBS, map(_known, one.raw.logprobs.T), strict=True))
    sent = {name: column for name, column in logprobs.items() if any(value is not None for value in column)}
    beside = {name: own for name, own in zip(BESIDE, one.beside, strict=False) if own.counts[0]}
    told = {name: _known(own.values)[0] if own.counts[0] == 1 else _known(own.values) for name, own in beside.items()}
    return {"position": one.raw.positions.tolist(), **sent, **told}


def _known(values: Array) -> list[float | None]:
    return [value if value == value else None for value in values.tolist()]
