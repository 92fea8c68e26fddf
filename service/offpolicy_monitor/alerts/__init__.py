"""Rules on how a run's figures change from step to step, as data, and their evaluation.

history holds figures by step; trends are functions of one figure over steps; rules are the rows; engine counts
breaches. Pure functions of figures: no database, no clock, no HTTP, and who is told is not known here.
"""

from offpolicy_monitor.alerts.engine import RuleState, evaluate
from offpolicy_monitor.alerts.history import History
from offpolicy_monitor.alerts.rules import PROFILES, RULES, Rule

__all__ = ["PROFILES", "RULES", "History", "Rule", "RuleState", "evaluate"]
