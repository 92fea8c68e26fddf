"""A whole summary from its unpacked tree: checked part by part, in the order in which parts rely on each other."""

from typing import Any

from offpolicy_monitor.summary.checks.facts import Facts
from offpolicy_monitor.summary.checks.faults import InvalidSummaryError
from offpolicy_monitor.summary.checks.records import Shard, check_records
from offpolicy_monitor.summary.checks.structure import check_tree
from offpolicy_monitor.summary.checks.tables import check_tables
from offpolicy_monitor.summary.checks.worst import check_worst, check_worst_tree
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.stored import from_tree


def checked(tree: Any, texts: Any, shard: Shard, most_tables: int) -> StepSummary:
    """The summary of a tree; InvalidSummaryError names the part of it that no batch of this shard has."""
    check_tree(tree, texts, most_tables)
    check_worst_tree(tree["worst"], texts["worst"])
    summary = from_tree(tree, texts)
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
