"""A RaggedBatch through the pass: cut into parts of tokens that are valid for the same gaps, and these into chunks.

A gap's tokens are those whose log-probs are finite in both of its columns. Where all of a batch is finite, which is the
rule, one part has every gap and nothing is copied. Chunks have fixed bounds, and their sums are added in order, so that
the figures are the same bit by bit whatever the number of threads.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.batch import LOGPROB_COLUMNS, Origin, RaggedBatch
from offpolicy_monitor.fused import arrays, inspection, runs, second_moment, sequences
from offpolicy_monitor.fused.arrays import (
    DENOMINATOR,
    DIFFERENCE_MAX,
    GAPS,
    NUMERATOR,
    SEEN,
    W_MAX,
    Bounds,
    Counts,
    Integers,
    Plan,
    Sequences,
    Sums,
    Tokens,
)
from offpolicy_monitor.fused.bands import on_tokens, sequence_bounds, token_bounds
from offpolicy_monitor.fused.sequences import NAMES, SequencePlan, SequenceSums
from offpolicy_monitor.fused.token import BIG
from offpolicy_monitor.fused.tokens import measure
from offpolicy_monitor.methods import METHODS, MethodRow
from offpolicy_monitor.methods.catalogue import kept_scores
from offpolicy_monitor.methods.curve import TOKEN_SCORES
from offpolicy_monitor.methods.rule import Cut
from offpolicy_monitor.summary import cells, histogram
from offpolicy_monitor.summary.evaluation import Detail
from offpolicy_monitor.summary.tables.buckets import MU_BUCKETS

Array = NDArray[Any]

#: Tokens that one thread takes at a time; a longer sequence is a chunk of its own.
CHUNK: Final = 1 << 16
#: Sequences whose figures fit into some hundred megabytes.
MOST_SEQUENCES: Final = 1 << 18
#: Beyond this magnitude the square of a float32 log-ratio nears overflow.
LARGEST_LOGPROB: Final = 1e15
#: log mu of 0 says that the token was certain; where the trainer's log-prob is below this it was not.
CERTAIN: Final = -0.1
#: Dtypes on the wire whose own rounding would look like a grid.
COARSE_DTYPES: Final = frozenset({"bfloat16", "float16"})

_SPLITS: Final = np.minimum(histogram.splits(), BIG).astype(np.float32)
_TOKEN_BINS: Final = cells.token_bins().astype(np.int32)
_MU_EDGES: Final = np.array([math.log(float(bucket)) for bucket in MU_BUCKETS[1:]], np.float32)
_EMPTY: Final = np.zeros(0, np.float32)
_NONE: Final = np.zeros(0, np.int64)
_NO_MARKS: Final = np.zeros(0, np.uint8)


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows that apply to a batch, and their numbers: `on_tokens` and `on_sequences` are places among `rows`.

    M2PO's rows are among the rules on tokens as rules that drop nothing; `cuts` has where, and their threshold.
    `whatif` asks for what-if cells and other anchors, `detail` for what is decided about each sequence, or each token.
    """

    rows: Sequence[MethodRow]
    tokens: Bounds
    on_tokens: Sequence[int]
    sequences: Bounds
    on_sequences: Sequence[int]
    cuts: Mapping[int, float]
    whatif: bool = True
    detail: Detail = "none"

    @property
    def numbered(self) -> Iterator[tuple[MethodRow, int, bool]]:
        """Each row with its number among those on tokens, or among those on sequences, and which of the two it is."""
        of_tokens = {place: k for k, place in enumerate(self.on_tokens)}
        of_sequences = {place: k for k, place in enumerate(self.on_sequences)}
        for place, row in enumerate(self.rows):
            found = of_tokens.get(place)
            yield (row, of_sequences[place], False) if found is None else (row, found, True)

    @classmethod
    def of(cls, rows: Sequence[MethodRow], whatif: bool = True, detail: Detail = "none") -> "Rows":
        """Put rows into numbers."""
        of_tokens = [place for place, row in enumerate(rows) if on_tokens(row)]
        of_sequences = [place for place, row in enumerate(rows) if not on_tokens(row)]
        return cls(
            rows, token_bounds([rows[place] for place in of_tokens], whatif), of_tokens,
            sequence_bounds([rows[place] for place in of_sequences], whatif), of_sequences,
            {k: rule.mean_square for k, place in enumerate(of_tokens) if isinstance(rule := rows[place].rule, Cut)},
            whatif, detail,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Measured:
    """What one part came to. `gaps` are those whose figures it has; `joint` says that its tokens have all three.

    token_cells, sequence_cells   (gap, score) of each what-if cell
    measures                      what is kept of each score of a gap (methods.catalogue.kept_scores)
    chosen                        which of the batch's tokens it has, [T] bool, or None for all
    """

    gaps: tuple[str, ...]
    joint: bool
    alone: bool
    tokens: Tokens
    sums: Sums
    counts: Counts
    left: Sequences
    of_sequences: SequenceSums
    token_cells: Sequence[tuple[str, str]]
    sequence_cells: Sequence[tuple[str, str]]
    measures: Mapping[str, Mapping[str, frozenset[str]]]
    chosen: Array | None

    @cached_property
    def totals(self) -> Array:
        """[3, SEQUENCE_SUMS]: the sums of sequences added up; its extremes are none."""
        totals: Array = self.left.gaps.sum(0)
        return totals

    @cached_property
    def filled(self) -> Array:
        """[N, 3, SEQUENCE_SUMS]: the sequences that have a token."""
        filled: Array = self.left.gaps[np.diff(self.tokens.offsets) > 0]
        return filled


class Batch:
    """A batch whose log-probs are float32: what is sent, and what of it is valid."""

    def __init__(self, source: RaggedBatch) -> None:
        self.source = source
        self.columns = {
            name: np.require(source.columns[name], np.float32, ("C", "A", "W"))
            for name in LOGPROB_COLUMNS
            if name in source.columns
        }
        self._extremes = {name: inspection.extremes(column) for name, column in self.columns.items()}
        finite = np.float32(np.inf).view(np.int32)
        self.holes = [name for name, (_, most, _) in self._extremes.items() if most >= finite]
        self.positive = any(largest > 0 for _, _, largest in self._extremes.values())
        advantages = source.columns.get("advantages")
        self.advantages = _EMPTY if advantages is None else np.require(advantages, np.float32, ("C", "A", "W"))

    @property
    def fits(self) -> bool:
        """Whether the pass can take it: no finite log-prob is too large for float32, and sequences are not too many."""
        return self.source.sequences <= MOST_SEQUENCES and not self._extreme

    @property
    def _extreme(self) -> bool:
        limit = np.float32(LARGEST_LOGPROB).view(np.int32)
        return any(
            most > limit and (name not in self.holes or bool((np.abs(self._finite_of(name)) > LARGEST_LOGPROB).any()))
            for name, (_, most, _) in self._extremes.items()
        )

    @property
    def gaps(self) -> tuple[str, ...]:
        """The gaps whose two columns were sent."""
        sent = [name in self.columns for name in LOGPROB_COLUMNS]
        return tuple(gap for place, gap in enumerate(GAPS) if sent[NUMERATOR[place]] and sent[DENOMINATOR[place]])

    def has(self, name: str) -> bool:
        """Whether the column was sent."""
        return name in self.source.columns

    @cached_property
    def suspects(self) -> tuple[int, int, int, int]:
        """Tokens that are not finite, above 0, exactly 0 by mu, and of those filled in (inspection.suspects)."""
        odd = self.holes or self.positive or any(least == 0 for least, _, _ in self._extremes.values())
        if not odd:
            return 0, 0, 0, 0
        columns = [self.columns.get(name, _EMPTY) for name in LOGPROB_COLUMNS]
        found: tuple[int, int, int, int] = inspection.suspects(*columns, np.float32(CERTAIN))
        return found

    def parts(self) -> list[tuple[tuple[str, ...], bool, bool, Array | None]]:
        """(gaps, joint, alone, chosen tokens) of each part; gaps that share their holes share a part."""
        if not self.holes:
            return [(self.gaps, len(self.gaps) == len(GAPS), False, None)] if self.source.tokens else []
        finite = {name: np.isfinite(self.columns[name]) for name in self.holes}
        by_holes: dict[tuple[str, ...], list[str]] = {}
        for gap in self.gaps:
            place = GAPS.index(gap)
            pair = (LOGPROB_COLUMNS[NUMERATOR[place]], LOGPROB_COLUMNS[DENOMINATOR[place]])
            by_holes.setdefault(tuple(name for name in self.holes if name in pair), []).append(gap)
        found = [(tuple(gaps), False, False, _all(finite, holes)) for holes, gaps in by_holes.items()]
        if len(self.gaps) == len(GAPS):
            found.append((GAPS, True, True, _all(finite, tuple(self.holes))))
        return [part for part in found if part[3] is None or part[3].any()]

    def _finite_of(self, name: str) -> Array:
        column = self.columns[name]
        finite: Array = column[np.isfinite(column)]
        return finite


def _all(finite: Mapping[str, Array], names: tuple[str, ...]) -> Array | None:
    return np.logical_and.reduce([finite[name] for name in names]) if names else None


def measured(
    batch: Batch, rows: Rows, origin: Origin, buckets: Integers, threads: Executor | None = None
) -> list[Measured]:
    """Run every part. buckets [S, dimensions]: of each sequence, in dimensions that do not change within them."""
    return [_part(batch, rows, origin, buckets, threads, *part) for part in batch.parts()]


def _part(
    batch: Batch, rows: Rows, origin: Origin, buckets: Integers, threads: Executor | None, gaps: tuple[str, ...],
    joint: bool, alone: bool, chosen: Array | None,
) -> Measured:  # fmt: skip
    tokens = _tokens(batch, gaps, chosen)
    scores = {gap: kept_scores(_methods(batch, rows.rows, gap)) for gap in gaps} if rows.whatif and not alone else {}
    token_cells = [(gap, name) for gap, kept in scores.items() for name in TOKEN_SCORES if name in kept]
    sequence_cells = [(gap, name) for gap, kept in scores.items() for name in kept if name not in TOKEN_SCORES]
    plan = _plan(batch, rows, gaps, joint, alone, token_cells)
    sums, counts, left = _run(tokens, plan, rows, _Runs.of(batch, origin, chosen), threads)
    _cut(batch, rows, gaps, alone, tokens, sums, left)
    bins = cells.SEQUENCE_BINS, cells.LENGTH_BINS
    wanted = SequencePlan(
        _pairs(sequence_cells, NAMES), buckets, *(np.ascontiguousarray(kind.magnitudes) for kind in bins)
    )
    of_sequences = sequences.sequence_sums(
        len(rows.on_sequences),
        len(rows.on_tokens),
        buckets.shape[1],
        runs.BUCKETS,
        len(sequence_cells),
        batch.source.sequences if rows.detail != "none" else 0,
    )
    sequences.add_up(tokens, plan, rows.sequences, rows.tokens.gap, wanted, left, of_sequences)
    return Measured(
        gaps, joint, alone, tokens, sums, counts, left, of_sequences, token_cells, sequence_cells, scores, chosen
    )  # fmt: skip


def _methods(batch: Batch, rows: Sequence[MethodRow], gap: str) -> frozenset[str]:
    """The methods asked for at this gap, those that stand on it by default, and those whose own gap was not sent."""
    default = {method.name for method in METHODS.values() if method.gap == gap or method.gap not in batch.gaps}
    return frozenset(default | {row.method.name for row in rows if row.gap == gap})


def _tokens(batch: Batch, gaps: tuple[str, ...], chosen: Array | None) -> Tokens:
    """The tokens of a part, without runs, which are made for each chunk."""
    needed = {0} | {column for gap in gaps for column in (NUMERATOR[GAPS.index(gap)], DENOMINATOR[GAPS.index(gap)])}
    columns = [
        batch.columns.get(name, _EMPTY) if place in needed else _EMPTY for place, name in enumerate(LOGPROB_COLUMNS)
    ]
    advantages, offsets = batch.advantages, batch.source.offsets
    if chosen is not None:
        columns = [column[chosen] if len(column) else column for column in columns]
        advantages = advantages[chosen] if "advantages" in batch.source.a_token else advantages
        offsets = np.concatenate([[0], np.cumsum(chosen)])[offsets]
    nothing = np.zeros((0, 1), np.int64)
    return Tokens((columns[0], columns[1], columns[2]), advantages, _integers(offsets), _NONE, _NONE, nothing)


@dataclass(frozen=True, eq=False)
class _Runs:
    """What runs are made of: each chunk has its own, since tokens may be as many runs.

    where [T + 1] int64: how many of the tokens before each are in the part; None where all are
    """

    offsets: Integers
    versions: Integers
    turns: Integers
    policy: int
    where: Integers | None

    @classmethod
    def of(cls, batch: Batch, origin: Origin, chosen: Array | None) -> "_Runs":
        """Of a part's tokens."""
        source = batch.source
        sent = {name: source.columns[name] for name in ("policy_versions", "turns") if name in source.a_token}
        if origin.policy_version is None:
            sent.pop("policy_versions", None)
        versions, turns = (_integers(sent.get(name, _NONE)) for name in ("policy_versions", "turns"))
        where = None if chosen is None else np.concatenate([[0], np.cumsum(chosen)])
        return cls(_integers(source.offsets), versions, turns, origin.policy_version or 0, where)

    @property
    def dimensions(self) -> int:
        """Of runs: positions, and lags and turns where they came for each token."""
        return 1 + (len(self.versions) > 0) + (len(self.turns) > 0)

    def added(self, tokens: Tokens, first: int, last: int) -> Tokens:
        """The tokens with the runs of sequences first..last."""
        begins, owners, buckets = runs.runs_of(self.offsets, first, last, self.versions, self.turns, self.policy)
        begins = begins if self.where is None else self.where[begins]
        return tokens._replace(runs=begins, owners=owners, buckets=buckets)


def _integers(values: Array) -> Integers:
    return np.require(values, np.int64, ("C", "A", "W"))


def _plan(
    batch: Batch, rows: Rows, gaps: tuple[str, ...], joint: bool, alone: bool, token_cells: Sequence[tuple[str, str]]
) -> Plan:
    flags = np.array([gap in gaps for gap in GAPS])
    bounds = rows.tokens
    of_band = np.repeat(np.arange(len(bounds.gap)), np.diff(bounds.ends))
    divergent = np.unique(of_band[np.isin(bounds.score, (arrays.AWAY, arrays.LARGER))])
    looked_at = {*bounds.gap[divergent].tolist(), *(bounds.anchor[divergent].tolist() if joint else ())}
    looked_at |= {GAPS.index(gap) for gap, score in token_cells if score.startswith("kl_")}
    divergences = np.array([gap in looked_at for gap in range(len(GAPS))])
    return Plan(
        flags, divergences & flags, _pairs(token_cells, TOKEN_SCORES), joint, alone, batch.has("advantages"),
        "advantages" in batch.source.a_token, not COARSE_DTYPES & set(batch.source.dtypes.values()),
        bool((bounds.score == arrays.MAGNITUDE).any()), batch.positive, _SPLITS, _TOKEN_BINS, _MU_EDGES,
    )  # fmt: skip


def _pairs(pairs: Sequence[tuple[str, str]], scores: Sequence[str]) -> Integers:
    return np.array([(GAPS.index(gap), scores.index(name)) for gap, name in pairs], np.int64).reshape(-1, 2)


def _run(
    tokens: Tokens, plan: Plan, rows: Rows, found: _Runs, threads: Executor | None
) -> tuple[Sums, Counts, Sequences]:
    """The pass over all chunks, in any order; their sums in theirs."""
    left = arrays.sequences(tokens.offsets, len(rows.on_tokens), rows.detail == "token")
    chunks = _chunks(tokens.offsets)
    shape = len(rows.on_tokens), found.dimensions, runs.BUCKETS, len(plan.cells)

    def work(share: Sequence[tuple[int, int]]) -> tuple[list[Sums], Counts]:
        block, counts, added = arrays.block(), arrays.counts(len(plan.cells)), []
        for first, last in share:
            added.append(arrays.sums(*shape))
            measure(found.added(tokens, first, last), plan, rows.tokens, first, last, block, left, added[-1], counts)
        return added, counts

    if threads is None or len(chunks) == 1:
        by_chunk, counts = work(chunks)
    else:
        shares = list(threads.map(work, ([chunk] for chunk in chunks)))
        by_chunk, counts = [one for share, _ in shares for one in share], shares[0][1]
        for _, other in shares[1:]:
            for name, mine in counts._asdict().items():
                mine += getattr(other, name)
    total = by_chunk[0]
    for one in by_chunk[1:]:
        _add(total, one)
    return total, counts, left


def _chunks(offsets: Integers) -> list[tuple[int, int]]:
    """Runs of whole sequences of CHUNK tokens, or more where one is longer."""
    bounds = np.unique(np.searchsorted(offsets, np.arange(0, int(offsets[-1]), CHUNK)))
    bounds[0] = 0
    edges = [*bounds.tolist(), len(offsets) - 1]
    return [(first, last) for first, last in pairwise(edges) if last > first]


def _add(total: Sums, one: Sums) -> None:
    """Add a chunk's sums; maxima and deviations are no sums."""
    largest = np.maximum(total.tokens[:, DIFFERENCE_MAX], one.tokens[:, DIFFERENCE_MAX])
    weights = np.maximum(total.weights[:, W_MAX], one.weights[:, W_MAX])
    apart = total.tokens[:, SEEN:].copy()
    for mine, theirs in zip(apart, one.tokens[:, SEEN:], strict=True):
        if theirs[0]:
            _join(mine, *theirs)
    for mine, theirs in zip(total, one, strict=True):
        mine += theirs
    total.tokens[:, DIFFERENCE_MAX], total.weights[:, W_MAX], total.tokens[:, SEEN:] = largest, weights, apart


def _join(mine: Array, tokens: float, mean: float, square: float) -> None:
    """sums.join for [3]: tokens, mean, squared deviation."""
    seen, step = float(mine[0]), mean - float(mine[1])
    mine[0] = seen + tokens
    mine[1] += step * tokens / (seen + tokens)
    mine[2] += square + step * step * seen * tokens / (seen + tokens)


def _cut(
    batch: Batch, rows: Rows, gaps: tuple[str, ...], alone: bool, tokens: Tokens, sums: Sums, left: Sequences
) -> None:
    """M2PO's rows, where the mean d^2 of all tokens is above their threshold."""
    for r, threshold in rows.cuts.items():
        gap = rows.rows[rows.on_tokens[r]].gap
        if alone or gap not in gaps:
            continue
        place = GAPS.index(gap)
        square, number = sums.rules[r, arrays.SQUARE_KEPT], int(tokens.offsets[-1])
        if square <= threshold * number * (1 - 1e-6):
            continue
        a, b = tokens.logprobs[NUMERATOR[place]], tokens.logprobs[DENOMINATOR[place]]
        value, ties = second_moment.cut(a, b, float(threshold))
        kept = left.kept[r] if len(left.kept) else _NO_MARKS
        a_token = "advantages" in batch.source.a_token
        sums.rules[r] = second_moment.drop(
            a, b, tokens.offsets, tokens.advantages, a_token, value, ties, left.dropped[r], kept
        )
