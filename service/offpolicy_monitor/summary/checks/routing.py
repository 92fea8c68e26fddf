"""The routing tables of a summary: tokens, layers and the gap's sums that are divided by them.

A shard has one number of layers and one k. Knows summary.tables.routing's names.
"""

from collections.abc import Sequence
from typing import Final

from offpolicy_monitor.summary.checks.facts import Facts, check_sparse, whole_number
from offpolicy_monitor.summary.checks.faults import about_at_most, need
from offpolicy_monitor.summary.checks.forms import form, join
from offpolicy_monitor.summary.tables import Table
from offpolicy_monitor.summary.tables.routing import PART_KEYS, PARTS, PREFIX
from offpolicy_monitor.summary.tables.worst import GAPS

MOST_LAYERS: Final = 1024
MOST_K: Final = 256
_COUNTS: Final = form(("tokens", "changed_tokens", "changed_layers"), at_most=(("changed_tokens", "tokens"),))
_PART: Final = form(("tokens",), magnitudes=PART_KEYS)
_TREND: Final = form(("layers", "layers_square"), magnitudes=("layers_moment", "layers_root"))


def check_routing(facts: Facts, rest: Sequence[str], table: Table, path: str) -> None:
    """Raise InvalidSummaryError for a routing table that no batch has."""
    need(len(rest) in (2, 4) and rest[0] in GAPS, path, "is no name of a table")
    gap, part = rest[0], rest[1]
    layers, k, counts = _counts(facts, gap, path)
    if len(rest) == 2:
        need(part in (*PARTS, "trend"), path, "is no name of a table")
        _check_divided(facts, gap, part, table, path)
        return
    need(list(rest[2:]) == [str(layers), str(k)] and part in ("counts", "missing"), path, "is no name of a table")
    if part == "missing":
        check_sparse(path, table, layers)
        need(all(value <= counts["tokens"] * k for value in table.values()), path, "counts more experts than there are")
        return
    _COUNTS.check(path, table)
    whole = facts.count(gap) if gap in facts.summary.gaps else facts.whole["tokens"]
    need(0 < table["tokens"] == whole, join(path, "tokens"), f"must be {whole}")
    few, many = table["changed_tokens"], table["changed_tokens"] * layers
    need(few <= table["changed_layers"] <= many, join(path, "changed_layers"), f"must be from {few} to {many}")


def _counts(facts: Facts, gap: str, path: str) -> tuple[int, int, Table]:
    """The one table of counts of a gap, with its layers and k."""
    prefix = f"{PREFIX}/{gap}/counts/"
    found = [name for name in facts.tables if name.startswith(prefix)]
    need(len(found) == 1, path, "needs one table of counts")
    shape = found[0].removeprefix(prefix).split("/")
    need(len(shape) == 2, path, "is no name of a table")
    layers, k = (whole_number(number, path) for number in shape)
    need(1 <= layers <= MOST_LAYERS and 1 <= k <= MOST_K, path, f"has more than {MOST_LAYERS} layers or top-{MOST_K}")
    counts = facts.tables[found[0]]
    need("tokens" in counts, path, "needs one table of counts")
    return layers, k, counts


def _check_divided(facts: Facts, gap: str, part: str, table: Table, path: str) -> None:
    facts.check_gap(gap, path)
    (_TREND if part == "trend" else _PART).check(path, table)
    found = [facts.tables.get(f"{PREFIX}/{gap}/{name}", {}).get("tokens", 0) for name in PARTS]
    need(sum(found) == facts.count(gap), path, "does not divide the tokens of the gap")
    if part == "trend":
        need(bool(found[1]), path, "needs tokens whose routing changed")
        need(about_at_most(table["layers"], table["layers_square"]), path, "has a square less than its sum")
    else:
        need(table["tokens"] > 0, join(path, "tokens"), "must not be 0")
