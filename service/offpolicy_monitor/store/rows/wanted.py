"""What is read of a step's summary for some figures: no more than they look at. It needs no database."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from offpolicy_monitor.summary.records import Wanted
from offpolicy_monitor.summary.step import StepSummary

#: Lists of paths that are kept.
MOST_KEPT: Final = 128


def figures_for(summary: StepSummary, paths: Iterable[str]) -> dict[str, Any]:
    """Figures of a step with all that these paths look at, or these patterns."""
    return summary.step_figures(wanted_at(tuple(paths)))


@lru_cache(MOST_KEPT)
def wanted_at(paths: tuple[str, ...]) -> Wanted:
    """What these paths look at, or these patterns: a figure that has the name of one of their keys."""
    return Wanted(frozenset(key for path in paths for key in path.split(".")))


def needed(summary: StepSummary, paths: Collection[str]) -> StepSummary:
    """What the figures at `paths` are read off: figures of method rows that nobody looks at are not made."""
    looked_at = any(path.startswith(("methods.", "correction.")) for path in paths)
    return summary if looked_at else replace(summary, specs={})
