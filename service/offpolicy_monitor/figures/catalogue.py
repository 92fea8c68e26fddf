"""The catalogue: every figure that is answered, and what follows from its rows.

Whoever stores, plots, judges, exposes or documents figures asks here which there are. A new figure is a row in
figures/rows, or of a kind of table in its module, and the line that reads it.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from offpolicy_monitor.figures.path import expression, matches, tree
from offpolicy_monitor.figures.rows.batch import BATCH
from offpolicy_monitor.figures.rows.gaps import OF_SEQUENCES, OF_TOKENS
from offpolicy_monitor.figures.rows.methods import CORRECTION, METHOD
from offpolicy_monitor.summary.figure import Figure, under
from offpolicy_monitor.summary.tables import KINDS

FIGURES: Final[tuple[Figure, ...]] = (
    *BATCH,
    *OF_TOKENS,
    *OF_SEQUENCES,
    *METHOD,
    *CORRECTION,
    *(figure for kind in KINDS for figure in under(kind.name, kind.figures)),
)

#: Patterns of what is stored in `metrics` for each step that counts. Some 80 figures per step, and
#: 100 of a run that sends everything.
HEADLINE: Final = tuple(pattern for figure in FIGURES for pattern in figure.headlines)
_HEADLINE_TREE: Final = tree(HEADLINE)
_PATHS: Final = tuple(figure.path for figure in FIGURES)
#: The last keys of whole numbers; no other figure that can be a headline ends with one of them.
_WHOLE: Final = frozenset(figure.name for figure in FIGURES if figure.is_whole)


def is_known(path: str) -> bool:
    """Whether a step may have a figure of this path."""
    return _any_of(_PATHS).fullmatch(path) is not None


def is_headline(path: str) -> bool:
    """Whether a figure of this path is in `metrics`."""
    return _any_of(HEADLINE).fullmatch(path) is not None


def with_correction(figures: Mapping[str, Any], correction: str | None) -> Mapping[str, Any]:
    """The figures, with those of the row that the trainer really uses at `correction` as well."""
    methods = figures.get("methods", {})
    return {**figures, "correction": methods[correction]} if correction in methods else figures


def headline(figures: Mapping[str, Any], correction: str | None = None) -> dict[str, float]:
    """The headline figures of a step that are present, by path; `correction` names the row in use."""
    return matches(with_correction(figures, correction), _HEADLINE_TREE)


def from_headline(headlines: Mapping[str, float]) -> dict[str, Any]:
    """Headline figures by path as figures of a step are nested; what is at `correction` is of a method as well."""
    figures: dict[str, Any] = {"gaps": {}, "methods": {}}
    for path, value in headlines.items():
        *parents, name = path.split(".")
        if parents[:1] != ["correction"]:
            node = figures
            for parent in parents:
                node = node.setdefault(parent, {})
            node[name] = int(value) if name in _WHOLE else value
    return figures


@cache
def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{expression(pattern)})" for pattern in patterns))
