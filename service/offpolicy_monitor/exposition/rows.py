"""Reads the samples of one run out of its row: a pure function of the row and of the families' paths.

Knows nothing of registries or of where the row came from. An absent or non-finite figure gives no sample.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from offpolicy_monitor.families import RUN_GAUGES, Family, Source

Labels = tuple[tuple[str, str], ...]


def read(row: Mapping[str, Any], path: str) -> Iterator[tuple[dict[str, str], float]]:
    """Each (labels, value) that `path` finds in `row`; labels are those that the path's braces name."""
    yield from _walk(row, path.split("."), {})


def _walk(node: Any, parts: list[str], labels: dict[str, str]) -> Iterator[tuple[dict[str, str], float]]:
    if not parts:
        if _is_figure(node):
            yield labels, float(node)
        return
    if not isinstance(node, Mapping):
        return
    label, keys = _keys(parts[0], node)
    for key in keys:
        if key in node:
            yield from _walk(node[key], parts[1:], {**labels, label: key} if label else labels)


def _keys(part: str, node: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The label that a part of a path names, if any, and the keys that it stands for."""
    if not part.startswith("{"):
        return "", (part,)
    label, _, named = part[1:-1].partition(":")
    return label, tuple(named.split("|")) if named else tuple(node)


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def samples(family: Family, run: str, row: Mapping[str, Any]) -> dict[Labels, float]:
    """The family's samples for one run: labels in the family's order -> value."""
    found: dict[Labels, float] = {}
    for source in family.sources:
        for labels, value in read(row, source.path):
            named = {"run": run, **source.labels, **labels}
            found.setdefault(tuple((name, named[name]) for name in family.labels), _converted(source, value))
    return {labels: value for labels, value in found.items() if math.isfinite(value)}


def _converted(source: Source, value: float) -> float:
    try:
        return source.convert(value) if source.convert else value
    except OverflowError:
        return math.inf


def all_samples(run: str, row: Mapping[str, Any]) -> dict[str, dict[Labels, float]]:
    """Every gauge of one run, by family name; what a scrape shows of it is exactly this."""
    return {family.name: samples(family, run, row) for family in RUN_GAUGES}
