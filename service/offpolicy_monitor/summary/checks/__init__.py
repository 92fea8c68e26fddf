"""Checks of a summary that comes from elsewhere: as strict as what is asked of raw data.

names is what may stand in paths; bounds is what rows declare of themselves; records are the sums of the batch, its gaps
and methods; tables is everything beside them, of which each kind says what else must hold.
What a run's method rows are, and where the bytes came from, is not known here.
"""

from offpolicy_monitor.summary.checks.names import check_names
from offpolicy_monitor.summary.checks.shard import Shard
from offpolicy_monitor.summary.checks.whole import check_figures, checked
from offpolicy_monitor.summary.faults import InvalidSummaryError

__all__ = ["InvalidSummaryError", "Shard", "check_figures", "check_names", "checked"]
