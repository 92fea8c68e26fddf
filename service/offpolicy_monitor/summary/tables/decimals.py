"""Decimals: whether log-probs were rounded to some decimal places, as those that went through a text are.

Looked at are values from -2 to -1, which float32 knows to 1.2e-7: enough tokens are there, and it costs little.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from offpolicy_monitor.summary import rows as schema
from offpolicy_monitor.summary.arrays import Array
from offpolicy_monitor.summary.kind import Kind
from offpolicy_monitor.summary.sums import Sums

PART: Final = "decimals"
COLUMNS: Final[Mapping[str, str]] = {"sampling": "sampling_logprobs", "old": "old_logprobs"}
PLACES: Final = (1, 2, 3, 4)
LOWEST, HIGHEST = -2.0, -1.0
#: How far from a multiple, in parts of the place, float32 may put it; 2e-3 of all values are as near by chance.
NEAR: Final = 1e-3
#: What is farther in float32 arithmetic, which errs by 1e-3 up there, is not near.
_MAYBE_NEAR: Final = np.float32(0.01)
#: Values of which everything that is made lies in a processor's cache.
_BLOCK: Final = 1 << 16
TABLE: Final = schema.Table(
    "batch",
    tuple(
        row
        for column in COLUMNS
        for row in (
            schema.count(f"{column}_looked_at", f"log-probs ({column}) from -2 to -1", at_most="tokens"),
            *(
                schema.count(f"{column}_places_{k}", f"multiples of 1e-{k}", at_most=f"{column}_looked_at")
                for k in PLACES
            ),
        )
    ),
    "log-probs rounded to decimal places",
    part=PART,
    when="sampling_logprobs or old_logprobs, and no log-probs coarser than float32",
    since=4,
)


_ROWS: Final = {
    column: (f"{column}_looked_at", *(f"{column}_places_{place}" for place in PLACES)) for column in COLUMNS
}


def multiples(values: Array) -> Sequence[int]:
    """[1 + places] of log-probs [T] float32: those that are looked at, and of them the multiples of each place.

    What is no multiple of a place counts as one of no larger place either.
    """
    blocks = (values[first : first + _BLOCK] for first in range(0, len(values), _BLOCK))
    return [sum(numbers) for numbers in zip([0] * (1 + len(PLACES)), *map(_of_block, blocks), strict=True)]


def _of_block(values: Array) -> list[int]:
    looked_at = (values >= LOWEST) & (values < HIGHEST)
    with np.errstate(over="ignore", invalid="ignore"):  # of what is not looked at
        scaled = values * np.float32(10.0 ** PLACES[-1])
        maybe = np.abs(scaled - np.rint(scaled)) < _MAYBE_NEAR
    chosen = values[looked_at & maybe].astype(np.float64)
    found = [int(np.count_nonzero(looked_at))]
    for place in reversed(PLACES):
        exact = chosen * 10.0**place
        chosen = chosen[np.abs(exact - np.rint(exact)) < NEAR]
        found.insert(1, len(chosen))
    return found


def decimal_sums(columns: Mapping[str, Array]) -> dict[str, int]:
    """The rows of a batch by its columns [T]; {} where neither has a value there."""
    found: dict[str, int] = {}
    for column, name in COLUMNS.items():
        numbers = multiples(columns[name]) if name in columns else [0] * (1 + len(PLACES))
        found |= {row: int(number) for row, number in zip(_ROWS[column], numbers, strict=True)}
    return found if any(found[f"{column}_looked_at"] for column in COLUMNS) else {}


def decimals(sums: Sums) -> dict[str, Any]:
    """The column most of whose values are decimal, their share, how many were looked at, and the fewest places that
    hold nine in ten of the decimal ones."""
    best: dict[str, Any] = {}
    for column in COLUMNS:
        tokens, most = sums.get(f"{column}_looked_at", 0), sums.get(f"{column}_places_{PLACES[-1]}", 0)
        if tokens and most / tokens > best.get("share", -1.0):
            places = next(place for place in PLACES if sums[f"{column}_places_{place}"] >= 0.9 * most)
            best = {"column": column, "share": most / tokens, "places": places, "tokens": int(tokens)}
    return best


#: Read as a mark of the signature.
KIND: Final = Kind(PART, (TABLE,))
