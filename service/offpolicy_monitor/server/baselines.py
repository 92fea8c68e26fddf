"""A run's own beginning, which its later steps are compared with, as a band to be drawn."""

from typing import Any, Final

import numpy as np

from offpolicy_monitor.store import RunView
from offpolicy_monitor.verdict import PATHS

#: The run's first steps that are its baseline, as rules have it: the 5th to the 25th.
BASELINE: Final = slice(5, 26)
#: Per cent of them that lie below and above the band.
ENDS: Final = (10.0, 90.0)


def baseline(view: RunView, path: str) -> dict[str, Any] | None:
    """{median, low, high, from, to} of a figure of PATHS, its middle 80 % there; None before those steps are over."""
    first = view.overview.first
    values = first.figures[PATHS.index(path), BASELINE]
    known = values[~np.isnan(values)]
    if len(first.steps) < BASELINE.stop or not len(known):
        return None
    low, middle, high = np.percentile(known, (ENDS[0], 50.0, ENDS[1])).tolist()
    begin, end = first.steps[BASELINE][[0, -1]].tolist()
    return {"median": middle, "low": low, "high": high, "from": begin, "to": end}
