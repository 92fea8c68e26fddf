"""The tree of a summary as it was unpacked: which parts it has and of which type, before any of them is read.

Knows summary.stored's tree. What the numbers mean is checked later.
"""

from collections.abc import Mapping
from typing import Any, Final

from offpolicy_monitor.summary.checks.faults import InvalidSummaryError, need
from offpolicy_monitor.summary.checks.forms import join
from offpolicy_monitor.summary.histogram import BINS, Histogram
from offpolicy_monitor.summary.sums import LARGEST_COUNT
from offpolicy_monitor.summary.tables.worst import GAPS

PARTS: Final = frozenset({"batch", "cross", "gaps", "methods", "tables", "worst"})
QUANTITIES: Final = ("log_ratio", "log_geometric_ratio", "log_product_ratio")
SIGNS: Final = ("negative", "zero", "positive", "unknown")
HISTOGRAMS: Final = frozenset(f"{quantity}/{sign}" for quantity in QUANTITIES for sign in SIGNS)


def check_tree(tree: Any, texts: Any, most_tables: int) -> None:
    """Raise InvalidSummaryError where the tree or the texts beside it have other parts than a summary has."""
    need(_names(tree) == PARTS, "", f"must have {', '.join(sorted(PARTS))} and nothing else")
    need(_names(texts) == {"specs", "worst"}, "", "must have the specs of its methods and the ids of its worst")
    for part in ("batch", "cross"):
        check_record(part, tree[part])
    for part in ("gaps", "methods", "tables"):
        need(isinstance(tree[part], dict), part, "must be an object")
    number = len(tree["tables"])
    over = f"{number} is over the limit of {most_tables}; raise OFFPOLICY_MAX_SUMMARY_TABLES to allow it"
    need(number <= most_tables, "tables", over)
    for part in ("methods", "tables"):
        for name, record in tree[part].items():
            check_record(join(part, name), record)
    _check_gaps(tree["gaps"])
    need(_names(texts["specs"]) == set(tree["methods"]), "methods", "must have one spec each")
    for name, spec in texts["specs"].items():
        need(isinstance(spec, dict), join("methods", name), "has no spec")
    need(isinstance(tree["worst"], dict), "worst", "must be an object")
    need(isinstance(texts["worst"], list), "worst", "ids must be a list")


def _check_gaps(gaps: Mapping[str, Any]) -> None:
    need(len(gaps) in (1, len(GAPS)), "gaps", "must be one, or all three")
    for name, gap in gaps.items():
        path = join("gaps", name)
        need(name in GAPS, path, f"is no gap; gaps: {', '.join(GAPS)}")
        need(_names(gap) == {"sums", "histograms"}, path, "must have sums and histograms")
        check_record(f"{path}.sums", gap["sums"])
        need(isinstance(gap["histograms"], dict), f"{path}.histograms", "must be an object")
        for key, counts in gap["histograms"].items():
            need(key in HISTOGRAMS, join(f"{path}.histograms", key), "is no histogram of a gap")
            _check_histogram(join(f"{path}.histograms", key), counts)


def _check_histogram(path: str, stored: Any) -> None:
    """A histogram's list of whole numbers must say the same when it is written again."""
    need(isinstance(stored, list) and len(stored) >= 3, path, "must be a list of whole numbers")
    whole = all(type(value) is int and abs(value) <= LARGEST_COUNT for value in stored)
    need(whole, path, "must be a list of whole numbers")
    first, length = stored[:2]
    fits = 0 <= first < BINS // 2 and 0 < length <= BINS // 2 - first
    need(fits and len(stored) >= 2 + length and (len(stored) - length) % 2 == 0, path, "has bins that do not exist")
    above = stored[2 + length :: 2]
    need(all(0 <= place < length for place in above), path, "has bins that do not exist")
    histogram = Histogram.from_stored(stored)
    need(bool((histogram.counts >= 0).all()), path, "has a negative count")
    need(histogram.to_stored() == stored, path, "is not in the form in which histograms are stored")


def check_record(path: str, record: Any) -> None:
    """Raise InvalidSummaryError where something is no table of numbers by name."""
    need(isinstance(record, dict), path, "must be a table of numbers")
    for name, value in record.items():
        if type(name) is not str or type(value) not in (int, float):
            raise InvalidSummaryError(join(path, name), "must be a number, by a name that is a string")


def _names(node: Any) -> set[str]:
    return set(node) if isinstance(node, dict) else set()
