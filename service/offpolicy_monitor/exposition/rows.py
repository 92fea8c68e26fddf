"""Reads the samples of one run out of its row: a pure function of the row and of the families' paths.

Knows nothing of registries or of where the row came from. An absent or non-finite figure gives no sample. A scrape
reads some 230 samples of each of its runs, so the paths of all families are one tree, and a row is walked once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from math import isfinite
from typing import Any, Final

from offpolicy_monitor.families import RUN_GAUGES, Family, Source

#: Values of a family's labels in its order, without the run's: what tells its samples of one run apart.
Labels = tuple[str, ...]
Samples = dict[Labels, float]
_NUMBERS: Final = (float, int)
_GAUGES: Final[Mapping[str, Family]] = {family.name: family for family in RUN_GAUGES}
#: Label sets of a source that are kept: more than 200 runs have with all the method rows that each may choose.
KEPT: Final = 1 << 16


class _LabelsOf(dict[Labels, Labels]):
    """The keys that a path's braces stood for -> a sample's labels, each made once while there are not too many.

    `order` says where each of the family's labels after the run's comes from: a text is the label's value, a number the
    index of a key.
    """

    def __init__(self, order: tuple[str | int, ...]) -> None:
        super().__init__()
        self._order = order

    def __missing__(self, keys: Labels) -> Labels:
        if len(self) >= KEPT:
            self.clear()
        found = self[keys] = tuple([part if isinstance(part, str) else keys[part] for part in self._order])
        return found


@dataclass(frozen=True)
class _Leaf:
    """A source whose path ends here: its index among all sources of the tree, and how it makes a sample of a figure."""

    index: int
    convert: Callable[[float], float] | None
    labels: _LabelsOf


@dataclass(frozen=True)
class _Node:
    """One part of paths: what ends here, what follows under one key, and what under every key, each of them a label."""

    leaves: list[_Leaf] = field(default_factory=list)
    named: dict[str, "_Node"] = field(default_factory=dict)
    each: list["_Node"] = field(default_factory=list)

    def grow(self, family: Family, index: int, source: Source) -> None:
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
        node.leaves.append(_Leaf(index, source.convert, _LabelsOf(order)))

    def walk(self, data: Mapping[str, Any], keys: Labels, found: list[Samples]) -> None:
        """Put what is in `data` where it belongs, by the indices of sources."""
        for key, node in self.named.items():
            if key in data:
                node.take(data[key], keys, found)
        for node in self.each:
            for key, value in data.items():
                node.take(value, (*keys, key), found)

    def take(self, value: Any, keys: Labels, found: list[Samples]) -> None:
        """Put a figure, or the figures of a table, where they belong."""
        if value.__class__ is dict:
            self.walk(value, keys, found)
        elif value.__class__ in _NUMBERS and isfinite(value):
            for leaf in self.leaves:
                shown = value if leaf.convert is None else _converted(leaf.convert, value)
                if shown is not None:
                    found[leaf.index][leaf.labels[keys]] = shown


def _converted(convert: Any, value: float) -> float | None:
    try:
        shown: float = convert(value)
    except OverflowError:
        return None
    return shown if isfinite(shown) else None


@cache
def _tree(names: tuple[str, ...]) -> _Node:
    """The paths of all sources of these gauges, whose indices are in their order."""
    root, index = _Node(), count()
    for name in names:
        for source in _GAUGES[name].sources:
            root.grow(_GAUGES[name], next(index), source)
    return root


def samples(family: Family, row: Mapping[str, Any]) -> Samples:
    """The family's samples for one run."""
    return _read((family,), row)[family.name]


def all_samples(row: Mapping[str, Any]) -> dict[str, Samples]:
    """Every gauge of one run, by family name; what a scrape shows of it is exactly this."""
    return _read(RUN_GAUGES, row)


def _read(families: tuple[Family, ...], row: Mapping[str, Any]) -> dict[str, Samples]:
    """Of two sources that give the same labels, the first with a figure counts."""
    found: list[Samples] = [{} for family in families for _ in family.sources]
    _tree(tuple([family.name for family in families])).walk(row, (), found)
    left = iter(found)
    return {family.name: _merged([next(left) for _ in family.sources]) for family in families}


def _merged(sources: list[Samples]) -> Samples:
    merged, *others = sources
    for samples in others:
        for labels, value in samples.items():
            merged.setdefault(labels, value)
    return merged
