"""Form: the shape of an answer, made once for all answers of that shape, into which numbers are put as they come.

A shape is nested dicts; a Slot in it stands for a number, everything else for itself. So the figures of a shard are one
row of numbers, and what takes most of the time, names and nesting, is there from the shard before. Knows no figure.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.summary.records import Figures, Floats

#: Writes a value, which may be a numpy row, as JSON.
Dump = Callable[[Any], bytes]


class Slot(int):
    """Stands for the number at this index of a row."""


def row(kinds: Iterable[Figures]) -> Floats:
    """[n] the figures of some kinds of records, one kind after the other, the records of each figure side by side."""
    return np.concatenate([of_records for figures in kinds for of_records in figures.values()])


def slots_of(kinds: Iterable[Figures], needs: Figures) -> list[list[dict[str, Any]]]:
    """Of each kind the figures of its records as slots, where they stand in their `row`.

    A figure is left out where what `needs` has under its name is NaN.
    """
    start, found = 0, []
    for figures in kinds:
        records: list[dict[str, Any]] = [{} for _ in next(iter(figures.values()))]
        for name in figures:
            for record, of_record in enumerate(records):
                if name not in needs or not np.isnan(needs[name][record]):
                    of_record[name] = Slot(start + record)
            start += len(records)
        found.append(records)
    return found


class Form:
    """A shape; the numbers at `counts` are whole."""

    def __init__(self, shape: Mapping[str, Any], counts: Collection[int]) -> None:
        self.shape = shape
        self.counts = whole = frozenset(counts)  # a range looks at each of its numbers where it is asked for a Slot
        found = sorted(dict.fromkeys(_slots(shape)), key=lambda slot: slot not in whole)
        self._counts = sum(slot in whole for slot in found)
        self._indices: NDArray[np.intp] = np.array(found, np.intp)
        self._number = {slot: number for number, slot in enumerate(found)}

    def filled(self, values: Floats) -> dict[str, Any]:
        """The answer, None for what JSON cannot hold."""
        whole, rest = self._parted(values)
        numbers: list[float | None] = rest.tolist()
        for index in np.flatnonzero(~np.isfinite(rest)).tolist():
            numbers[index] = None
        return self._fill([*whole.tolist(), *numbers])

    def text(self, values: Floats, dump: Dump) -> bytes:
        """The answer as JSON; `dump` writes null for what it cannot hold."""
        texts = [text for part in self._parted(values) if len(part) for text in dump(part)[1:-1].split(b",")]
        order, fragments = self._written
        parts: list[bytes] = [b""] * (2 * len(fragments) - 1)
        parts[::2], parts[1::2] = fragments, [texts[number] for number in order]
        return b"".join(parts)

    def _parted(self, values: Floats) -> tuple[NDArray[np.int64], Floats]:
        """The numbers that are whole, and the others."""
        chosen = values[self._indices]
        return chosen[: self._counts].astype(np.int64), chosen[self._counts :]

    @cached_property
    def _fill(self) -> Callable[[list[Any]], dict[str, Any]]:
        return _filler(self.shape, self._number)

    @cached_property
    def _written(self) -> tuple[list[int], list[bytes]]:
        """Which number comes after each fragment of text but the last, and the fragments."""
        order: list[int] = []
        fragments = [b""]
        for piece in _pieces(self.shape):
            if isinstance(piece, Slot):
                order.append(self._number[piece])
                fragments.append(b"")
            else:
                fragments[-1] += piece
        return order, fragments


@dataclass(frozen=True, eq=False)
class Told:
    """An answer: a form, and the row of its numbers."""

    form: Form
    values: Floats

    def figures(self) -> dict[str, Any]:
        """As nested dicts."""
        return self.form.filled(self.values)

    def text(self, dump: Dump) -> bytes:
        """As JSON."""
        return self.form.text(self.values, dump)


def _slots(shape: Mapping[str, Any]) -> Iterator[Slot]:
    for value in shape.values():
        if isinstance(value, Slot):
            yield value
        elif isinstance(value, Mapping):
            yield from _slots(value)


def _pieces(shape: Mapping[str, Any]) -> Iterator[bytes | Slot]:
    """The text of a shape, and what stands for numbers."""
    yield b"{"
    for index, (key, value) in enumerate(shape.items()):
        yield (b"," if index else b"") + json.dumps(key).encode() + b":"
        if isinstance(value, Slot):
            yield value
        elif isinstance(value, Mapping):
            yield from _pieces(value)
        else:
            yield json.dumps(value).encode()
    yield b"}"


def _filler(shape: Mapping[str, Any], number: Mapping[Slot, int]) -> Callable[[list[Any]], dict[str, Any]]:
    """Makes a dict of this shape of numbers."""
    leaves = {key: number[value] for key, value in shape.items() if isinstance(value, Slot)}
    inner = [(key, _filler(value, number)) for key, value in shape.items() if isinstance(value, Mapping)]
    fixed = {key: value for key, value in shape.items() if not isinstance(value, (Slot, Mapping))}
    # Of one index alone it would give no tuple.
    names, chosen = tuple(leaves), itemgetter(*leaves.values(), 0) if leaves else None

    def fill(numbers: list[Any]) -> dict[str, Any]:
        found = fixed.copy()
        if chosen is not None:
            found.update(zip(names, chosen(numbers), strict=False))
        for key, below in inner:
            found[key] = below(numbers)
        return found

    return fill
