"""Evaluation: what /v1/evaluate answers, with all that has an entry per sequence or a position held as numpy columns.

As Python lists a mask would take eight bytes per entry and more; it becomes text piece by piece, and never as a whole.
Shapes: S sequences as sent, P positions as sent. It knows neither torch nor HTTP, nor which JSON library writes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.summary.figure import Figure

Array = NDArray[Any]
#: What is answered beside figures: nothing, what rows decide about sequences, and about each token too.
Detail = Literal["none", "sequence", "token"]
#: What is said of each sequence, of each gap, over its valid tokens; d = log a - log b.
OF_A_SEQUENCE: Final = (
    Figure("log_geometric_ratio", "nats", "mean of `d`"),
    Figure("log_product_ratio", "nats", "sum of `d`"),
    Figure("abs_log_ratio_max", "nats", "largest `abs d`"),
    Figure("k1", "nats", "mean of `-d`"),
    Figure("k3", "nats", "mean of `expm1(d) - d`"),
)
SEQUENCE_FIGURES: Final = tuple(figure.path for figure in OF_A_SEQUENCE)
#: Writes a value, which may be a numpy column, as JSON.
Dump = Callable[[Any], bytes]
#: Positions, and sequences, that one piece of text holds at most, unless one sequence is longer.
PIECE_POSITIONS: Final = 1 << 16
PIECE_SEQUENCES: Final = 1 << 9


@dataclass(frozen=True, eq=False)
class RowDetail:
    """What one method row decided.

    keep_sequences  [S] uint8: 1 where some valid token is kept
    keep_tokens     [P] uint8, or None where it was not asked for
    weights         [P] float, 0 at invalid positions; None of a method without weights
    """

    keep_sequences: Array
    keep_tokens: Array | None = None
    weights: Array | None = None


@dataclass(frozen=True, eq=False)
class SequenceColumns:
    """Per sequence: its tokens under the mask, its id if sent, and by gap its figures [S] float64, NaN where absent."""

    tokens: Array
    ids: Sequence[str] | None
    gaps: Mapping[str, Mapping[str, Array]]

    def rows(self, first: int, last: int) -> list[dict[str, Any]]:
        """The objects of sequences first..last (exclusive)."""
        counts = self.tokens[first:last].tolist()
        rows: list[dict[str, Any]] = [{"tokens": count, "gaps": {}} for count in counts]
        if self.ids is not None:
            rows = [{"id": name, **row} for name, row in zip(self.ids[first:last], rows, strict=True)]
        for gap, columns in self.gaps.items():
            lists = {name: _numbers(values[first:last]) for name, values in columns.items()}
            for index, row in enumerate(rows):
                row["gaps"][gap] = {name: values[index] for name, values in lists.items()}
        return rows


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The answer: figures of the batch, figures of each row in the order asked, and the detail asked for.

    starts  [S+1] int64: where the positions of each sequence begin
    """

    figures: Mapping[str, Any]
    methods: Sequence[Mapping[str, Any]]
    starts: Array
    details: Sequence[RowDetail] | None = None
    sequences: SequenceColumns | None = None

    def answer(self) -> dict[str, Any]:
        """All of it as one value."""
        answer = {**self.figures, "methods": [dict(row) for row in self.methods]}
        for row, detail in zip(answer["methods"], self.details or (), strict=self.details is not None):
            row["keep_sequences"] = detail.keep_sequences.tolist()
            for name, column in (("keep_tokens", detail.keep_tokens), ("weights", detail.weights)):
                if column is not None:
                    row[name] = [column[begin:end].tolist() for begin, end in self._spans(0, len(self.starts) - 1)]
        if self.sequences is not None:
            answer["per_sequence"] = self.sequences.rows(0, len(self.starts) - 1)
        return answer

    def pieces(self, dump: Dump) -> Iterator[bytes]:
        """The same as JSON text, piece by piece."""
        yield dump(dict(self.figures))[:-1]
        if self.sequences is not None:
            yield b',"per_sequence":['
            yield from _joined(
                dump(self.sequences.rows(first, first + PIECE_SEQUENCES))[1:-1]
                for first in range(0, len(self.starts) - 1, PIECE_SEQUENCES)
            )
            yield b"]"
        yield b',"methods":['
        for index, row in enumerate(self.methods):
            yield b"," if index else b""
            yield dump(dict(row))[:-1]
            yield from self._detail(index, dump)
            yield b"}"
        yield b"]}"

    def _detail(self, index: int, dump: Dump) -> Iterator[bytes]:
        if self.details is None:
            return
        detail = self.details[index]
        yield b',"keep_sequences":' + dump(detail.keep_sequences)
        if detail.keep_tokens is not None:
            keep = detail.keep_tokens
            yield b',"keep_tokens":['
            yield from _joined(self._masks(keep, *part) for part in self._parts())
            yield b"]"
        if detail.weights is not None:
            weights = detail.weights
            yield b',"weights":['
            yield from _joined(
                b",".join(dump(weights[begin:end]) for begin, end in self._spans(*part)) for part in self._parts()
            )
            yield b"]"

    def _masks(self, keep: Array, first: int, last: int) -> bytes:
        """Lists of 0 and 1 of sequences first..last: a digit and a comma a position, cut where sequences end."""
        start = int(self.starts[first])
        text = np.full(2 * (int(self.starts[last]) - start), ord(","), np.uint8)
        text[::2] = keep[start : int(self.starts[last])] + ord("0")
        digits = text.tobytes()
        spans = ((begin - start, end - start) for begin, end in self._spans(first, last))
        return b",".join(b"[%b]" % digits[2 * begin : max(2 * end - 1, 2 * begin)] for begin, end in spans)

    def _spans(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Where the positions of each of these sequences begin and end."""
        return pairwise(self.starts[first : last + 1].tolist())

    def _parts(self) -> Iterator[tuple[int, int]]:
        """Runs of sequences whose positions make one piece."""
        first, sequences = 0, len(self.starts) - 1
        while first < sequences:
            limit = int(np.searchsorted(self.starts, self.starts[first] + PIECE_POSITIONS, side="right")) - 1
            last = min(max(limit, first + 1), first + PIECE_POSITIONS, sequences)
            yield first, last
            first = last


def _joined(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces with commas between them."""
    for index, piece in enumerate(pieces):
        yield b"," + piece if index else piece


def _numbers(values: Array) -> list[float | None]:
    return [number if finite else None for number, finite in zip(values.tolist(), np.isfinite(values), strict=True)]
