"""Layout: how the positions of a body belong to its sequences, whichever way the body spelled that.

Packed [P] with `lengths`, padded [S, L] and lists of S lists all become one flat run of positions with a length per
sequence; what a padded row holds beyond its length is cut off here. Knows no values but those of `lengths`.

All token arrays of a body must come in the same form: flat lists of P entries, or rows of the same widths.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from offpolicy_monitor.batch import Array
from offpolicy_monitor.vocabulary import LOGPROBS
from offpolicy_monitor.wire.arrays import invalid
from offpolicy_monitor.wire.limits import Limits
from offpolicy_monitor.wire.sent import SentArray
from offpolicy_monitor.wire.values import integers


@dataclass(frozen=True, eq=False)
class Layout:
    """The form that the token arrays of a body share.

    lengths [S] int64: positions of each sequence
    sent    P as sent: entries of each token array
    widths  [S] int64 as sent, or None for the packed form
    kept    [sent] bool: which entries lie within the lengths, or None where all do
    """

    lengths: Array
    sent: int
    widths: Array | None
    kept: Array | None

    @classmethod
    def of(cls, arrays: Mapping[str, SentArray], limits: Limits) -> "Layout":
        """The layout of a body with at least one log-prob array; its `lengths` are read if it has them."""
        return cls.known(arrays, read_lengths(arrays, limits))

    @classmethod
    def known(cls, arrays: Mapping[str, SentArray], lengths: Array | None) -> "Layout":
        """The layout of a body whose sequences have these lengths (None: only its rows tell).

        Raises Refusal 422 where the lengths are missing or do not fit the first log-prob array.
        """
        name = next(name for name in LOGPROBS if name in arrays)
        model = arrays[name]
        if model.widths is not None:
            return cls._of_rows(model, model.widths, lengths)
        positions = len(model.values)
        if lengths is None:
            if positions:
                raise invalid("lengths", "required where the arrays are packed")
            lengths = np.zeros(0, np.int64)
        if (in_all := int(np.add.reduce(lengths))) != positions:
            raise invalid("lengths", f"sum to {in_all}, but {name} has {positions} positions")
        return cls(lengths, positions, None, None)

    @classmethod
    def _of_rows(cls, model: SentArray, widths: Array, lengths: Array | None) -> "Layout":
        if lengths is None or np.array_equal(lengths, widths):
            return cls(widths, len(model.values), widths, None)
        if len(lengths) != len(widths):
            raise invalid("lengths", f"has {len(lengths)} entries, but {model.name} has {len(widths)} rows")
        if (widths != widths[0]).any():
            raise invalid("lengths", f"differ from the lengths of the lists of {model.name}")
        if (lengths > widths).any():
            raise invalid("lengths", f"an entry is over {int(widths[0])}, the width of {model.name}")
        kept = (np.arange(widths[0]) < lengths[:, None]).reshape(-1)
        return cls(lengths, len(model.values), widths, kept)

    @property
    def sequences(self) -> int:
        """S, empty sequences included."""
        return len(self.lengths)

    def is_per_sequence(self, array: SentArray) -> bool:
        """Whether an array is [S] and not per position; refuses one whose form or size does not agree with this layout.

        Where S equals the number of positions a flat list is per sequence; with one position in each it is the same.
        """
        name, _, values, widths = array
        per, entries = array.row.per, len(values)
        if per == "sequence" or (per == "either" and widths is None and entries == self.sequences):
            if entries != self.sequences:
                raise invalid(name, f"has {entries} entries for {self.sequences} sequences")
            return True
        if (widths is None) != (self.widths is None):
            raise invalid(name, "must come in the same form as the log-probs: packed, padded or lists of lists")
        if widths is not None and self.widths is not None and not np.array_equal(widths, self.widths):
            raise invalid(name, _apart(widths, self.widths))
        if entries != self.sent:
            raise invalid(name, f"its {entries} positions do not fit the {self.sent} of the log-probs")
        return False

    def cut(self, values: Array) -> Array:
        """The values [sent, ...] of the positions within the lengths: [P, ...], a view where nothing is cut."""
        return values if self.kept is None else values[self.kept]


def _apart(widths: Array, expected: Array) -> str:
    """In what rows of these widths differ from those of the log-probs."""
    if len(widths) != len(expected):
        return f"its rows are {len(widths)} where those of the log-probs are {len(expected)}"
    row = int((widths != expected).argmax())
    return f"row {row} is {widths[row]} long where that of the log-probs is {expected[row]}"


def read_lengths(arrays: Mapping[str, SentArray], limits: Limits) -> Array | None:
    """`lengths` as int64 [S], within the limits; None where absent."""
    if "lengths" not in arrays:
        return None
    sent = arrays["lengths"]
    limits.check("max_sequences", "lengths", len(sent.values))
    lengths = integers(sent)
    if len(lengths):
        if np.minimum.reduce(lengths) < 0:
            raise invalid("lengths", "an entry is negative")
        limits.check("max_sequence_length", "lengths", int(np.maximum.reduce(lengths)))
    return lengths
