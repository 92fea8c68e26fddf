"""A whole summary, checked part by part, in the order in which parts rely on each other."""

from offpolicy_monitor.summary.checks.bounds import check_bounds
from offpolicy_monitor.summary.checks.facts import Facts
from offpolicy_monitor.summary.checks.faults import InvalidSummaryError
from offpolicy_monitor.summary.checks.records import check_records
from offpolicy_monitor.summary.checks.shard import Shard
from offpolicy_monitor.summary.checks.tables import check_tables
from offpolicy_monitor.summary.checks.worst import check_worst
from offpolicy_monitor.summary.step import StepSummary


def checked(summary: StepSummary, shard: Shard) -> StepSummary:
    """The summary, whose names were checked; InvalidSummaryError names the part that no batch of this shard has."""
    check_bounds(summary.arrays)
    check_records(summary, shard)
    facts = Facts(summary, shard)
    check_tables(facts)
    check_worst(summary.worst, facts)
    return summary


def check_figures(summary: StepSummary) -> None:
    """InvalidSummaryError where figures cannot be computed: sums that pass one by one and contradict each other."""
    try:
        summary.step_figures()
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise InvalidSummaryError("", f"its figures cannot be computed ({error!r:.200})") from error
