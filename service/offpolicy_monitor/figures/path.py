"""Paths: the one way to name a figure, here, in alerts, in metric families, in a diagnosis and in the series route.

A path is the keys from the top of a step's figures to a number, joined by dots: `gaps.mismatch.k3`, and of an entry of
a list its index: `routing.mismatch.by_layer.0`. A key may hold dots itself (`quantiles.0.001`, a label's value). In a
pattern `{name}` stands for a key: one of NAMES, or any text.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from offpolicy_monitor.vocabulary import GAPS, QUANTILES

#: What a name in a pattern may stand for, as a regular expression; any other name for any text at all.
NAMES: Final[Mapping[str, str]] = {
    "gap": "|".join(GAPS),
    "quantile": "|".join(re.escape(str(fraction)) for fraction in QUANTILES),
    "method": r"[^.]+",
    "index": r"\d+",
    "lag": r"-?\d+",
}
#: Keys of patterns, and what follows them; nothing where a pattern ends.
Tree = dict[str, "Tree"]
_NAME: Final = re.compile(r"\{(\w+)\}")


def names(pattern: str) -> list[str]:
    """The names in a pattern, in order."""
    return _NAME.findall(pattern)


def expression(pattern: str) -> str:
    """The regular expression of the paths that a pattern stands for."""
    parts = _NAME.split(pattern)
    return "".join(f"(?:{NAMES.get(part, '.+')})" if index % 2 else re.escape(part) for index, part in enumerate(parts))


def number(value: Any) -> float | None:
    """The value if it is a number that can be plotted."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def at(figures: Any, path: str) -> float | None:
    """The number at a path of nested figures, or of figures that are by path already; None where there is none."""
    node = _by_key(figures)
    if path in node:
        return number(node[path])
    end = path.find(".")
    while end > 0:
        if path[:end] in node and (found := at(node[path[:end]], path[end + 1 :])) is not None:
            return found
        end = path.find(".", end + 1)
    return None


def at_each(figures: Any, paths: Iterable[str]) -> dict[str, float]:
    """The numbers at those of the paths that have one."""
    found = ((path, at(figures, path)) for path in paths)
    return {path: value for path, value in found if value is not None}


def walk(figures: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    """(path, number) of every number in nested figures."""
    for key, value in _by_key(figures).items():
        if (found := number(value)) is not None:
            yield f"{prefix}{key}", found
        else:
            yield from walk(value, f"{prefix}{key}.")


def tree(patterns: Iterable[str]) -> Tree:
    """The patterns as one tree by their keys, so that figures are walked once for all of them."""
    root: Tree = {}
    for pattern in patterns:
        node = root
        *above, last = pattern.split(".")
        for key in above:
            node = node.setdefault(key, {})
        node[last] = {}
    return root


def matches(figures: Mapping[str, Any], wanted: Tree, prefix: str = "") -> dict[str, float]:
    """{path: number} of every number at the patterns of a tree; no key of theirs holds a dot."""
    found: dict[str, float] = {}
    for key, below in wanted.items():
        for name in figures if key.startswith("{") else (key,) if key in figures else ():
            value = figures[name]
            if isinstance(value, dict):
                found |= matches(value, below, f"{prefix}{name}.")
            elif not below and (plotted := number(value)) is not None:
                found[prefix + name] = plotted
    return found


def _by_key(node: Any) -> Mapping[str, Any]:
    if isinstance(node, Mapping):
        return node
    if isinstance(node, Sequence) and not isinstance(node, str | bytes):
        return {str(index): item for index, item in enumerate(node)}
    return {}
