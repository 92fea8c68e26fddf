"""The corrections that RL trainers use, as data: what each one drops, on which gap, with which thresholds.

curve says what one threshold bounds, rule what a row compares; model what a method and a row of it are; catalogue holds
the methods, checks what they ask of their parameters; presets the rows that run by default or on request; options how
frameworks write a row; parse reads rows that a caller sent, selection those that a run shall have. Nothing is computed
here, and nothing here needs torch.
"""

from offpolicy_monitor.methods.catalogue import METHODS
from offpolicy_monitor.methods.model import Method, MethodRow
from offpolicy_monitor.methods.parse import parse_row, parse_rows
from offpolicy_monitor.methods.presets import COMPARED, ON_REQUEST, PRESETS
from offpolicy_monitor.methods.selection import parse_selection, restored
from offpolicy_monitor.vocabulary import GAPS

__all__ = [
    "COMPARED",
    "GAPS",
    "METHODS",
    "ON_REQUEST",
    "PRESETS",
    "Method",
    "MethodRow",
    "parse_row",
    "parse_rows",
    "parse_selection",
    "restored",
]
