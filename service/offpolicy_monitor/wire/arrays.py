"""The arrays that a body may hold, as a table of rows, and how one of them is refused.

Knows names, dtypes and values that are allowed; not how either media type spells them, and not how the arrays fit
together (layout). Trainers import it: it needs numpy, and this project's errors and vocabulary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from offpolicy_monitor.errors import MAX_ERRORS, FieldError, Refusal, quotable
from offpolicy_monitor.vocabulary import LARGEST_VERSION

MAX_LAYERS = 1024
MAX_TOP_K = 256
#: Larger entries are refused: their squares, times any ratio, still add up over every token to what float64 holds.
LARGEST_FLOAT = 1e100
#: The array that stands instead of all others where a trainer has reduced its shard itself.
SUMMARY = "summary"

Kind = Literal["log-prob", "float", "int", "mask", "experts"]
Per = Literal["token", "sequence", "either"]


@dataclass(frozen=True)
class ArrayRow:
    """One array of the contract: what its entries are, and whether it has one per position or per sequence."""

    name: str
    kind: Kind
    per: Per
    least: int | None = None
    """Smallest value allowed, for kind int."""
    most: float | None = None
    """Largest magnitude allowed of a finite value."""
    neutral: int = 0
    """What stands for a sequence without a token, for arrays given per sequence or per token."""
    finite: bool = False
    """Whether a value that is not finite is refused."""

    @property
    def inner_rank(self) -> int:
        """Dimensions behind the position: 2 for [T, layers, k], else 0."""
        return 2 if self.kind == "experts" else 0


ARRAYS: Mapping[str, ArrayRow] = {
    row.name: row
    for row in (
        ArrayRow("sampling_logprobs", "log-prob", "token", most=LARGEST_FLOAT),
        ArrayRow("old_logprobs", "log-prob", "token", most=LARGEST_FLOAT),
        ArrayRow("logprobs", "log-prob", "token", most=LARGEST_FLOAT),
        ArrayRow("engine_logprobs", "log-prob", "token", most=LARGEST_FLOAT),
        ArrayRow("old_logprobs_repeat", "log-prob", "token", most=LARGEST_FLOAT),
        ArrayRow("old_support_logprobs", "log-prob", "token", most=LARGEST_FLOAT),
        ArrayRow("support_logprobs", "log-prob", "token", most=LARGEST_FLOAT),
        ArrayRow("lengths", "int", "sequence", least=0),
        ArrayRow("mask", "mask", "token"),
        ArrayRow("advantages", "float", "either", most=LARGEST_FLOAT, finite=True),
        ArrayRow("policy_versions", "int", "either", least=-1, most=LARGEST_VERSION, neutral=-1),
        ArrayRow("rewards", "float", "sequence", most=LARGEST_FLOAT),
        ArrayRow("group_ids", "int", "sequence"),
        ArrayRow("turns", "int", "token"),
        ArrayRow("entropy", "float", "token", most=LARGEST_FLOAT),
        ArrayRow("sampling_experts", "experts", "token"),
        ArrayRow("old_experts", "experts", "token"),
        ArrayRow("experts", "experts", "token"),
    )
}

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})

# The dtypes each kind takes, by their names on the wire.
DTYPES: Mapping[Kind, frozenset[str]] = {
    "log-prob": FLOATS,
    "float": FLOATS,
    "int": INTEGERS,
    "mask": FLOATS | INTEGERS | {"bool"},
    "experts": frozenset({"uint8", "uint16"}),
}
# The same by numpy's letters for kinds of dtypes; it has no bfloat16 of its own.
NUMPY_KINDS: Mapping[Kind, frozenset[str]] = {
    kind: frozenset("f" if name == "bfloat16" else np.dtype(name).kind for name in names)
    for kind, names in DTYPES.items()
}


def invalid(field: str, message: str) -> Refusal:
    """The 422 of one envelope field or array."""
    return all_invalid([FieldError(field, message)])


def all_invalid(errors: Sequence[FieldError]) -> Refusal:
    """One 422 for all fields at fault, the first MAX_ERRORS of them."""
    errors = [FieldError(quotable(error.field), error.message) for error in errors[:MAX_ERRORS]]
    return Refusal(422, "invalid-field", "; ".join(f"{error.field}: {error.message}" for error in errors), errors)
