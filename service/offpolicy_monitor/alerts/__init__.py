"""Rules on how a run's figures change from step to step, as data, and their evaluation.

history holds figures by step; comparisons are functions of them, and trends, drift, reward_trend and weights what these
are made of; rule is what a row is and rules the rows; breaches and engine count; wall_clock has the rules on time;
episodes joins one judgement to the next; roots says which of them speaks for the others; judge is all of it for one
run. Pure functions of figures: no database, no clock, no HTTP, and who is told is not known here.
"""

from offpolicy_monitor.alerts.engine import RuleState, evaluate
from offpolicy_monitor.alerts.episodes import Episode
from offpolicy_monitor.alerts.history import History
from offpolicy_monitor.alerts.rule import CORRECTIONS, SEVERITIES, Rule, Severity, Terms
from offpolicy_monitor.alerts.rules import RULES, of_all, paths_of
from offpolicy_monitor.alerts.wall_clock import WALL_CLOCK_RULES, Timing, WallClockRule

__all__ = [
    "CORRECTIONS",
    "RULES",
    "SEVERITIES",
    "WALL_CLOCK_RULES",
    "Episode",
    "History",
    "Rule",
    "RuleState",
    "Severity",
    "Terms",
    "Timing",
    "WallClockRule",
    "evaluate",
    "of_all",
    "paths_of",
]
