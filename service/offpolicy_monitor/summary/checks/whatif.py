"""The what-if tables of a summary: cells of the scores that curves read, which add up to the gap's tokens or sequences.

Knows which scores methods compare, and summary.cells; no rule.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from offpolicy_monitor.methods.catalogue import MEASURES
from offpolicy_monitor.methods.curve import TOKEN_SCORES
from offpolicy_monitor.summary.cells import LENGTH_BINS, LENGTHS, SEQUENCE_BINS, TOKEN_BINS
from offpolicy_monitor.summary.checks.facts import Facts, check_sparse, parts_of, whole_number
from offpolicy_monitor.summary.checks.faults import need
from offpolicy_monitor.summary.checks.forms import check_number, join
from offpolicy_monitor.summary.tables import Table
from offpolicy_monitor.vocabulary import SIGNS

MEASURE_NAMES: Final = ("tokens", "sequences", "mass", "lengths")


def check_whatif(facts: Facts, rest: Sequence[str], table: Table, path: str) -> None:
    """Raise InvalidSummaryError for a what-if table that no batch has."""
    gap, score, measure = parts_of(rest, 3, path)
    wanted = MEASURES.get(score, frozenset())
    kept = measure in wanted or (measure == "lengths" and "tokens" in wanted)
    need(kept and measure in MEASURE_NAMES, path, "is no name of a table")
    facts.check_gap(gap, path)
    a_token = score in TOKEN_SCORES
    bins = (TOKEN_BINS if a_token and measure != "sequences" else SEQUENCE_BINS).number
    if measure == "mass":
        _check_mass(table, len(SIGNS) * bins, path)
    elif measure == "lengths":
        unit = "tokens" if a_token else "sequences"
        check_sparse(path, table, len(SIGNS) * LENGTHS * LENGTH_BINS.number, facts.count(gap, unit))
    else:
        check_sparse(path, table, len(SIGNS) * bins, facts.count(gap, measure))


def _check_mass(table: Mapping[str, float], bins: int, path: str) -> None:
    for key, value in table.items():
        need(0 <= whole_number(key, path) < bins, join(path, key), "is no bin")
        check_number(join(path, key), "magnitude", value)
