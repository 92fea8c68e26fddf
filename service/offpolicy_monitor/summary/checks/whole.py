"""A whole summary, checked part by part, in the order in which parts rely on each other."""

from typing import Final

from offpolicy_monitor.summary.checks.bounds import check_bounds
from offpolicy_monitor.summary.checks.facts import Facts
from offpolicy_monitor.summary.checks.records import check_records
from offpolicy_monitor.summary.checks.shard import Shard
from offpolicy_monitor.summary.checks.tables import check_tables
from offpolicy_monitor.summary.faults import InvalidSummaryError, need, printable
from offpolicy_monitor.summary.records import Wanted
from offpolicy_monitor.summary.remembered import remembered
from offpolicy_monitor.summary.rows import POLICY_VERSION
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.tables import KINDS
from offpolicy_monitor.summary.tables.worst import check_worst


def checked(summary: StepSummary, shard: Shard) -> StepSummary:
    """The summary, whose names were checked; InvalidSummaryError names the part that no batch of this shard has."""
    _check_version(summary, shard)
    check_bounds(summary.arrays)
    check_records(summary, shard)
    facts = Facts(summary, shard)
    check_tables(facts)
    check_worst(summary.worst, facts)
    return summary


def _check_version(summary: StepSummary, shard: Shard) -> None:
    """Raise InvalidSummaryError for a table that needs the policy version where the shard has none."""
    if shard.policy_version is None:  # whole records first: their paths say more than `batch`
        for table in sorted(summary.arrays.scheme.tables.values(), key=lambda table: table.part):
            need(POLICY_VERSION not in table.needs, printable(table.key), "needs a policy_version")


#: Figures that are computed number by number, which may fail where numbers contradict each other.
ONE_BY_ONE: Final = Wanted(
    frozenset(
        name
        for kind in KINDS
        for name in (kind.name, *kind.marks)
        if not kind.total and (kind.read is not None or kind.marks)
    )
)


def check_figures(summary: StepSummary) -> None:
    """InvalidSummaryError where figures cannot be computed: sums that pass one by one and contradict each other.

    Those of gaps and methods, and of kinds that are total, take any numbers that were checked. Whether they can be made
    of these tables and rows is tried once.
    """
    arrays, specs = summary.arrays, summary.specs
    try:
        summary.in_dicts(ONE_BY_ONE)
        tables = (arrays.scheme.base, len(arrays.scheme.own), arrays.absent, tuple(specs))
        remembered(("figures", *tables), specs.values(), lambda: bool(summary.step_figures()))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise InvalidSummaryError("", f"its figures cannot be computed ({error!r:.200})") from error
