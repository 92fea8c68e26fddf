"""A RaggedBatch as the pass takes it: arrays in the dtypes of compiled code, and which tokens are valid for which gaps.

A gap's tokens are those whose log-probs are finite in both of its columns. Where all of a batch is finite, which is the
rule, one part has every gap and nothing is copied.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.fused import runs
from offpolicy_monitor.fused.arrays import Floats, Integers, Tokens, fitting
from offpolicy_monitor.fused.chunk import Sent
from offpolicy_monitor.fused.inspection import Inspected, inspect, inspect_short
from offpolicy_monitor.fused.parts import Kind
from offpolicy_monitor.vocabulary import GAP_LOGPROBS, GAPS, LOGPROBS

Array = NDArray[Any]

#: Sequences whose figures fit into some hundred megabytes.
MOST_SEQUENCES: Final = 1 << 18
#: Counts are int32.
MOST_TOKENS: Final = (1 << 31) - 1
#: Tokens and sequences of a batch so short that looking through it keeps the interpreter's lock.
MOST_SHORT: Final = 1 << 13
#: Beyond this magnitude the square of a float32 log-ratio nears overflow.
LARGEST_LOGPROB: Final = 1e15

_FINITE: Final = int(np.float32(np.inf).view(np.int32))
_LARGEST: Final = int(np.float32(LARGEST_LOGPROB).view(np.int32))
_EMPTY: Final = np.zeros(0, np.float32)
_NONE: Final = np.zeros(0, np.int64)
_NO_BUCKETS: Final = np.zeros((0, 1), np.int64)


def is_short(source: RaggedBatch) -> bool:
    """Whether a call over all its tokens or sequences, other than the pass itself, is over in some 0.05 ms."""
    return source.tokens + source.sequences <= MOST_SHORT


class Chosen(NamedTuple):
    """A part's gaps, and `joint` and `alone` as Part has them; which of the tokens it has [T] bool, or None for all."""

    gaps: tuple[str, ...]
    joint: bool
    alone: bool
    tokens: Array | None


class Batch:
    """A batch whose log-probs are float32, and where it comes from."""

    def __init__(self, source: RaggedBatch, origin: Origin) -> None:
        self.source, self.origin = source, origin
        self.columns = {name: _of(source.columns[name]) for name in LOGPROBS if name in source.columns}
        self.advantages = _of(source.columns["advantages"]) if "advantages" in source.columns else _EMPTY
        self.offsets: Integers = fitting(source.offsets, np.int64)
        mu, old, pi = (self.columns.get(name, _EMPTY) for name in LOGPROBS)
        self.logprobs = mu, old, pi  # empty where not sent
        self.is_short = is_short(source)
        look = inspect_short if self.is_short else inspect
        self.inspected = Inspected(*look(*self.logprobs, self.offsets, source.is_fine))
        self._most = dict(zip(LOGPROBS, self.inspected.most, strict=True))
        self.holes = [name for name in self.columns if self._most[name] >= _FINITE]
        self.gaps = _gaps_of(tuple(self.columns))

    @property
    def fits(self) -> bool:
        """Whether the pass can take it: no finite log-prob is too large for float32, and there are not too many."""
        few = self.source.sequences <= MOST_SEQUENCES and self.source.tokens <= MOST_TOKENS
        return few and not any(
            most > _LARGEST and (name not in self.holes or self._far(name)) for name, most in self._most.items()
        )

    def _far(self, name: str) -> bool:
        column = self.columns[name]
        return bool((np.abs(column[np.isfinite(column)]) > LARGEST_LOGPROB).any())

    def kind(self, constants: int) -> Kind:
        """What it has in common with others, where a whole shard is one bucket of so many dimensions."""
        sampling = LOGPROBS[0] in self.columns
        advantages, turns = self._owner("advantages"), self._owner("turns")
        versions = "" if self.origin.policy_version is None else self._owner("policy_versions")
        positive = self.inspected.positive
        return Kind(self.gaps, sampling, advantages, turns, versions, self.source.is_fine, positive, constants)

    @property
    def has_advantages(self) -> bool:
        """Whether they were sent."""
        return "advantages" in self.source.columns

    @property
    def advantages_of(self) -> str:
        """What has one each: a token, a sequence, or nothing."""
        return self._owner("advantages")

    def _owner(self, name: str) -> str:
        """What has one entry each."""
        return "" if name not in self.source.columns else "token" if name in self.source.per_token else "sequence"

    def parts(self) -> list[Chosen]:
        """Gaps that share their holes share a part; there is none without a token."""
        if not self.holes:
            return [Chosen(self.gaps, len(self.gaps) == len(GAPS), False, None)] if self.source.tokens else []
        finite = {name: np.isfinite(self.columns[name]) for name in self.holes}
        by_holes: dict[tuple[str, ...], list[str]] = {}
        for gap in self.gaps:
            by_holes.setdefault(tuple(name for name in self.holes if name in _PAIRS[gap]), []).append(gap)
        found = [Chosen(tuple(gaps), False, False, _all(finite, holes)) for holes, gaps in by_holes.items()]
        if len(self.gaps) == len(GAPS):
            found.append(Chosen(GAPS, True, True, _all(finite, self.holes)))
        return [part for part in found if part.tokens is None or part.tokens.any()]

    def tokens(self, chosen: Chosen) -> Tokens:
        """The tokens of a part, without runs, which are made for each chunk."""
        columns = [
            column if needed else _EMPTY for column, needed in zip(self.logprobs, _needed(chosen.gaps), strict=True)
        ]
        advantages, offsets = self.advantages, self.offsets
        if chosen.tokens is not None:
            columns = [column[chosen.tokens] if len(column) else column for column in columns]
            advantages = advantages[chosen.tokens] if self._owner("advantages") == "token" else advantages
            offsets = _before(chosen.tokens)[offsets]
        return Tokens((columns[0], columns[1], columns[2]), advantages, offsets, _NONE, _NONE, _NO_BUCKETS)

    def sent(self, chosen: Chosen) -> Sent:
        """What the runs of a part are made of."""
        where = _NONE if chosen.tokens is None else _before(chosen.tokens)
        return Sent(self.offsets, self._versions("token"), self._integers("turns", "token"), where, self._policy)

    def buckets(self, constants: int) -> Integers:
        """[S, dimensions]: of each sequence, in the order of Kind.of_sequences."""
        advantages = self.advantages if self._owner("advantages") == "sequence" else _EMPTY
        turns, versions = self._integers("turns", "sequence"), self._versions("sequence")
        found: Integers = runs.buckets_of(self.offsets, advantages, turns, versions, self._policy, constants)
        return found

    def versions(self) -> tuple[Integers, bool] | None:
        """Those that were sent, and whether each token has one; None where there are none."""
        of = self._owner("policy_versions")
        return (self._integers("policy_versions", of), of == "token") if of and self.source.tokens else None

    @property
    def _policy(self) -> int:
        return self.origin.policy_version or 0

    def _versions(self, of: str) -> Integers:
        return _NONE if self.origin.policy_version is None else self._integers("policy_versions", of)

    def _integers(self, name: str, of: str) -> Integers:
        """A column of tokens, or of sequences; nothing where it was not sent, or is of the others."""
        return _NONE if self._owner(name) != of else fitting(self.source.columns[name], np.int64)


_PAIRS: Final[Mapping[str, frozenset[str]]] = {gap: frozenset(pair) for gap, pair in GAP_LOGPROBS.items()}


@cache
def _gaps_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """The gaps both of whose columns are among those of LOGPROBS that were sent."""
    return tuple(gap for gap, pair in _PAIRS.items() if pair <= {*names})


@cache
def _needed(gaps: tuple[str, ...]) -> Sequence[bool]:
    """Which of LOGPROBS some gaps need, beside mu."""
    needed = {LOGPROBS[0]}.union(*(_PAIRS[gap] for gap in gaps))
    return [name in needed for name in LOGPROBS]


def _of(column: Array) -> Floats:
    found: Floats = fitting(column, np.float32)
    return found


def _all(finite: Mapping[str, Array], names: Sequence[str]) -> Array | None:
    return np.logical_and.reduce([finite[name] for name in names]) if names else None


def _before(chosen: Array) -> Integers:
    """[T + 1]: how many of the tokens before each are chosen."""
    return np.concatenate([[0], np.cumsum(chosen)])
