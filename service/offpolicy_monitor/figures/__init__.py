"""The figures that are answered: one row per figure, and the one language that names them.

path is the language, rows the rows, and catalogue all of them; what a row is stands in summary.figure. It computes
none, and knows neither torch nor the database.
"""

from offpolicy_monitor.figures.catalogue import (
    FIGURES,
    HEADLINE,
    from_headline,
    headline,
    is_headline,
    is_known,
    with_correction,
)
from offpolicy_monitor.figures.path import at, at_each, walk
from offpolicy_monitor.summary.figure import Figure, Gauge

__all__ = [
    "FIGURES",
    "HEADLINE",
    "Figure",
    "Gauge",
    "at",
    "at_each",
    "from_headline",
    "headline",
    "is_headline",
    "is_known",
    "walk",
    "with_correction",
]
