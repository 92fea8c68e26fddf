"""The corrections that RL trainers use, as data: what each one drops, on which gap, with which thresholds.

model says what a method and a row of it are; catalogue holds the methods; presets the rows that run by default; parse
reads rows that a caller sent, selection those that a run shall have. Nothing is computed here: the rules are
core.rules.
"""

from offpolicy_monitor.methods.catalogue import METHODS
from offpolicy_monitor.methods.model import GAPS, Method, MethodRow
from offpolicy_monitor.methods.parse import parse_row, parse_rows
from offpolicy_monitor.methods.presets import PRESETS
from offpolicy_monitor.methods.selection import parse_selection, restored

__all__ = [
    "GAPS",
    "METHODS",
    "PRESETS",
    "Method",
    "MethodRow",
    "parse_row",
    "parse_rows",
    "parse_selection",
    "restored",
]
