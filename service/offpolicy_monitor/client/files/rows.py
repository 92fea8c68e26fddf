"""Rows: sequences as a framework's dump has them, packed into the arrays of a batch and cut into shards.

A row is one sequence. A column is sent only where every row of the step has it, so that no figure mixes what was dumped
with what was not. Knows no framework's names.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.client.files.record import Bad, Item, Record, Unreadable
from offpolicy_monitor.vocabulary import LOGPROBS

Array = NDArray[Any]
# Positions of one post: about 60 MB as arrays, far below what the service takes by default.
MOST_TOKENS = 1 << 22


@dataclass(frozen=True, eq=False)
class Row:
    """One sequence of T tokens: `tokens` are [T] arrays, `scalars` one number each; `name` to find it again."""

    tokens: Mapping[str, Array]
    scalars: Mapping[str, float | int] = field(default_factory=dict)
    name: str | None = None

    @property
    def length(self) -> int:
        """T."""
        return len(next(iter(self.tokens.values())))


def floats(name: str, values: Any) -> Array:
    """A list of numbers and nulls as [T] float32, null as NaN. Raises Unreadable for anything else."""
    try:
        with np.errstate(over="ignore"):
            array = np.array(values, np.float64).astype(np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise Unreadable(f"{name} must hold numbers or null") from error
    if array.ndim != 1:
        raise Unreadable(f"{name} must be one flat list")
    return array


def marks(name: str, values: Any) -> Array:
    """A list of booleans or of 0 and 1 as [T] bool. Raises Unreadable for anything else."""
    array = floats(name, values)
    if not np.isin(array, (0, 1)).all():
        raise Unreadable(f"{name} must hold 0, 1, true or false")
    return array.astype(bool)


def fraction(name: str, value: Any) -> float:
    """A number as a float. Raises Unreadable for an integer that no float holds."""
    try:
        return float(value)
    except OverflowError as error:
        raise Unreadable(f"{name} is an integer that no float holds") from error


def whole(name: str, value: Any) -> int:
    """An integer of 64 bits. Raises Unreadable for a larger one."""
    number = int(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise Unreadable(f"{name} is an integer of more than 64 bits")
    return number


def check_lengths(tokens: Mapping[str, Array]) -> None:
    """Raise Unreadable unless all arrays of one sequence are equally long."""
    lengths = {name: len(array) for name, array in tokens.items()}
    if len(set(lengths.values())) > 1:
        raise Unreadable("not equally long: " + ", ".join(f"{name} {length}" for name, length in lengths.items()))


def records(
    where: str, envelope: Mapping[str, Any], rows: Sequence[Row], end: int, most: int = MOST_TOKENS
) -> Iterator[Item]:
    """The rows of one step as shards of at most `most` positions (one sequence at least), packed.

    Which rows go into which shard depends on the rows alone, so that reading the same files again gives the same posts.
    A Bad where fewer than two of the three log-probs are there for every row.
    """
    shards = list(_cut(rows, most))
    tokens, scalars = _common([row.tokens for row in rows]), _common([row.scalars for row in rows])
    if len(found := [name for name in LOGPROBS if name in tokens]) < 2:
        yield Bad(where, f"has {found[0] if found else 'no log-probs'} alone, and a gap needs two log-probs", end)
        return
    named = all(row.name is not None for row in rows)
    for index, shard in enumerate(shards):
        arrays: dict[str, Any] = {name: np.concatenate([row.tokens[name] for row in shard]) for name in tokens}
        arrays |= {name: _scalars([row.scalars[name] for row in shard]) for name in scalars}
        arrays["lengths"] = np.array([row.length for row in shard], np.int64)
        head = {**envelope, "shard": index, "shards": len(shards)}
        if named:
            head["sequence_ids"] = [row.name for row in shard]
        yield Record(where, head, arrays, end * (index + 1) // len(shards))


def _cut(rows: Sequence[Row], most: int) -> Iterator[Sequence[Row]]:
    start = held = 0
    for index, row in enumerate(rows):
        if index > start and held + row.length > most:
            yield rows[start:index]
            start, held = index, 0
        held += row.length
    if rows:
        yield rows[start:]


def _common(columns: Sequence[Mapping[str, Any]]) -> list[str]:
    return [name for name in columns[0] if all(name in column for column in columns)] if columns else []


def _scalars(values: Sequence[float | int]) -> Array:
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return np.array(values, np.int64)
    with np.errstate(over="ignore"):
        return np.array(values, np.float64).astype(np.float32)
