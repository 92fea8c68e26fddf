"""What a run's figures and alerts come to, in one sentence of plain words, said once for everyone who tells it.

facts are the plain values that it is said of; numbers how these are written; parts the clauses that cases share; cases
one function for each thing that can be said; say chooses among them; root is what an alert tells of it. Pure: no
database, no clock, no HTTP.
"""

from offpolicy_monitor.verdict.facts import PATHS, Breach, Cause, Facts, Masks, Window, onset
from offpolicy_monitor.verdict.root import of_root
from offpolicy_monitor.verdict.say import Said, say

__all__ = ["PATHS", "Breach", "Cause", "Facts", "Masks", "Said", "Window", "of_root", "onset", "say"]
