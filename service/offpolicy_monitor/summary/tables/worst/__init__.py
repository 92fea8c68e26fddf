"""Worst: the sequences that stand first in some ranking of a gradient step, with what is needed to find them again.

A ranking is of one gap by one figure: max |d|, |log geometric ratio|, or the sum of k3, whose share of the step's total
is made when it is read. A sequence is kept once, whatever ranks it. From the batch to the answer they are columns of
numbers (`columns`), merged by their rankings (`merge`) and answered one by one (`figures`); of those that a trainer
reduced `check` says what must hold. Measured by `measure.worst`.
"""

from offpolicy_monitor.summary.tables.worst.check import check_worst
from offpolicy_monitor.summary.tables.worst.columns import (
    BESIDE,
    COLUMNS,
    GAP_INDEX,
    GAPS,
    LARGEST,
    MOST,
    MOST_TOKENS,
    NO_POSITIONS,
    NO_SEQUENCES,
    OF_TOKENS,
    RANKINGS,
    By,
    Column,
    Numbers,
    Positions,
    Ranked,
    Ranking,
    Sequences,
    Tokens,
    together,
)
from offpolicy_monitor.summary.tables.worst.figures import OfStep, Standing, first_of, still_first
from offpolicy_monitor.summary.tables.worst.merge import Worst

__all__ = [
    "BESIDE",
    "COLUMNS",
    "GAPS",
    "GAP_INDEX",
    "LARGEST",
    "MOST",
    "MOST_TOKENS",
    "NO_POSITIONS",
    "NO_SEQUENCES",
    "OF_TOKENS",
    "RANKINGS",
    "By",
    "Column",
    "Numbers",
    "OfStep",
    "Positions",
    "Ranked",
    "Ranking",
    "Sequences",
    "Standing",
    "Tokens",
    "Worst",
    "check_worst",
    "first_of",
    "still_first",
    "together",
]  # fmt: skip
