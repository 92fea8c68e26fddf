"""Checks of a summary that comes from elsewhere: as strict as what is asked of raw data.

faults is how a fault is named; forms says what a record of numbers must hold; structure is the tree as it was unpacked;
records are the sums of the batch, its gaps and methods; tables and whatif are everything beside them; worst the worst
sequences. What a run's method rows are, and where the bytes came from, is not known here.
"""

from offpolicy_monitor.summary.checks.faults import InvalidSummaryError
from offpolicy_monitor.summary.checks.records import Shard
from offpolicy_monitor.summary.checks.whole import check_figures, checked

__all__ = ["InvalidSummaryError", "Shard", "check_figures", "checked"]
