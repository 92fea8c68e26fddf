"""Reads the samples of one run out of its row: a pure function of the row and of the families' paths.

Knows nothing of registries or of where the row came from. An absent or non-finite figure gives no sample. A scrape
reads some 230 samples of each of its runs, so the paths of all families are one tree, and a row is walked once.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from offpolicy_monitor.families import RUN_GAUGES, Family, Source

#: Values of a family's labels in its order, without the run's: what tells its samples of one run apart.
Labels = tuple[str, ...]
Samples = dict[Labels, float]
_NUMBERS: Final = (float, int)


@dataclass(frozen=True)
class _Leaf:
    """A source whose path ends here. `order` says where each of the family's labels after the run's comes from.

    A text is the label's value, a number the index of a key among those that the path's braces stood for.
    """

    family: str
    number: int
    source: Source
    order: tuple[str | int, ...]

    def labels(self, keys: Labels) -> Labels:
        """The sample's labels."""
        return tuple([part if isinstance(part, str) else keys[part] for part in self.order])


@dataclass(frozen=True)
class _Node:
    """One part of paths: what ends here, what follows under one key, and what under every key, each of them a label."""

    leaves: list[_Leaf] = field(default_factory=list)
    named: dict[str, "_Node"] = field(default_factory=dict)
    each: list["_Node"] = field(default_factory=list)

    def grow(self, family: Family, number: int, source: Source) -> None:
        """Add a source's path."""
        node, found = self, []
        for part in source.path.split("."):
            if part.startswith("{"):
                found.append(part[1:-1])
                node.each[:] = node.each or [_Node()]
                node = node.each[0]
            else:
                node = node.named.setdefault(part, _Node())
        order = tuple(source.labels.get(label) or found.index(label) for label in family.labels[1:])
        node.leaves.append(_Leaf(family.name, number, source, order))

    def walk(self, data: Any, keys: Labels, found: dict[str, list[Samples]]) -> None:
        """Put what is in `data` where it belongs: family -> source's number -> samples."""
        if data.__class__ is dict:
            for key, node in self.named.items():
                if key in data:
                    node.walk(data[key], keys, found)
            for node in self.each:
                for key, value in data.items():
                    node.walk(value, (*keys, key), found)
        elif data.__class__ in _NUMBERS and math.isfinite(data):
            for leaf in self.leaves:
                value = data if leaf.source.convert is None else _converted(leaf.source.convert, data)
                if value is not None:
                    found[leaf.family][leaf.number][leaf.labels(keys)] = value


def _converted(convert: Any, value: float) -> float | None:
    try:
        shown: float = convert(value)
    except OverflowError:
        return None
    return shown if math.isfinite(shown) else None


@cache
def _tree(families: tuple[str, ...]) -> _Node:
    root = _Node()
    for family in RUN_GAUGES:
        if family.name in families:
            for number, source in enumerate(family.sources):
                root.grow(family, number, source)
    return root


def samples(family: Family, row: Mapping[str, Any]) -> Samples:
    """The family's samples for one run."""
    return _read([family], row)[family.name]


def all_samples(row: Mapping[str, Any]) -> dict[str, Samples]:
    """Every gauge of one run, by family name; what a scrape shows of it is exactly this."""
    return _read(RUN_GAUGES, row)


def _read(families: Iterable[Family], row: Mapping[str, Any]) -> dict[str, Samples]:
    """Of two sources that give the same labels, the first with a figure counts."""
    found: dict[str, list[Samples]] = {family.name: [{} for _ in family.sources] for family in families}
    _tree(tuple(found)).walk(row, (), found)
    return {name: of if not more else _merged([of, *more]) for name, (of, *more) in found.items()}


def _merged(sources: list[Samples]) -> Samples:
    merged: Samples = {}
    for samples in sources:
        for labels, value in samples.items():
            merged.setdefault(labels, value)
    return merged
