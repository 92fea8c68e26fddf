"""What is kept of a batch: mergeable, torch-free values and the figures they answer.

sums and histogram are the monoids everything is made of; gap and method give them meaning; step holds them together;
stored is their written form.
"""

from offpolicy_monitor.summary.gap import GapSummary
from offpolicy_monitor.summary.histogram import Histogram
from offpolicy_monitor.summary.method import MethodSummary
from offpolicy_monitor.summary.step import StepSummary, merge_all
from offpolicy_monitor.summary.stored import StoredSummaryError, from_bytes, to_bytes

__all__ = [
    "GapSummary",
    "Histogram",
    "MethodSummary",
    "StepSummary",
    "StoredSummaryError",
    "from_bytes",
    "merge_all",
    "to_bytes",
]
