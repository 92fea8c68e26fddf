"""What is kept of a batch: mergeable, torch-free values and the figures they answer.

rows, figure and kind say how content is declared, tables and layout what there is; arrays hold it, merge adds it up;
gap, method and tables read figures off it, by formulas over records side by side; answer puts them into a form; step
holds all together; stored is the written form.
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
