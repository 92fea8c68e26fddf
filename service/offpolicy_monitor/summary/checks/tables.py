"""The tables of a summary: their names, what each holds, and what it may count, one check a kind of table.

A kind is the first part of a table's name; KINDS is the list of all. What-if tables have a module of their own.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import unquote

from offpolicy_monitor.summary.checks.facts import Facts, check_sparse, parts_of, whole_number
from offpolicy_monitor.summary.checks.faults import need
from offpolicy_monitor.summary.checks.forms import form, join
from offpolicy_monitor.summary.checks.routing import check_routing
from offpolicy_monitor.summary.checks.whatif import check_whatif
from offpolicy_monitor.summary.tables import Table
from offpolicy_monitor.summary.tables.advantage import GRADIENT_BINS
from offpolicy_monitor.summary.tables.breakdown import CROSS_KEYS, GAP_KEYS
from offpolicy_monitor.summary.tables.buckets import BUCKETS, constant_buckets
from offpolicy_monitor.summary.tables.lengths import BINS as LENGTH_BINS
from offpolicy_monitor.summary.tables.lengths import BINS_A_POWER
from offpolicy_monitor.summary.tables.signature import GRID_KEYS, LEAST, NEIGHBOUR_KEYS

Check = Callable[[Facts, Sequence[str], Table, str], None]

_GAP: Final = form(("tokens",), ("log_ratio",), set(GAP_KEYS) - {"log_ratio"})
_CROSS: Final = form(("tokens",), ("mismatch_staleness",), set(CROSS_KEYS) - {"mismatch_staleness"})
_SPANS: Final = form(("spans", "sequences"), ("lag",), groups=(("lag",),), at_most=(("sequences", "spans"),))
_SEQUENCE: Final = form(
    ("sequences", "moving", "vanishing", "extreme"),
    magnitudes=("cancelled",),
    at_most=(
        ("moving", "sequences"),
        ("vanishing", "sequences"),
        ("extreme", "sequences"),
        ("cancelled", "moving"),
    ),
)
_ADVANTAGE: Final = form(
    ("tokens", "bad", "outward"),
    ("advantage_excess",),
    ("advantage_abs", "mass_square", "advantage_square", "outward_square"),
    groups=(("tokens", "bad", "outward", "outward_square"),),
    at_most=(("bad", "tokens"), ("outward", "tokens")),
)
_ANCHOR: Final = form(("tokens", "differing"), at_most=(("differing", "tokens"),))
_MIDDLE: Final = form(
    ("tokens", "exact"), ("b", "d", "b_d"), ("b_square", "d_square"), (("exact",),), (("exact", "tokens"),)
)
_NEIGHBOURS: Final = form(("pairs",), set(NEIGHBOUR_KEYS) - {"pairs"})
_GRID: Final = form(GRID_KEYS, groups=((key,) for key in GRID_KEYS))
#: Of those that every gap with tokens has.
REQUIRED: Final = ("sequence/{gap}", "length/{gap}/sequences", "length/{gap}/tokens")


def check_tables(facts: Facts) -> None:
    """Raise InvalidSummaryError for a table of no known name, or one that cannot stand beside the records."""
    for name, table in facts.tables.items():
        kind, *rest = name.split("/")
        path = join("tables", name)
        need(kind in KINDS, path, "is no name of a table")
        KINDS[kind](facts, rest, table, path)
    for gap in facts.summary.gaps:
        for name in REQUIRED if facts.count(gap) else ():
            need(name.format(gap=gap) in facts.tables, join("tables", name.format(gap=gap)), "required")
    _check_divided(facts)


def _breakdown(facts: Facts, rest: Sequence[str], table: Table, path: str) -> None:
    dimension, bucket, part = parts_of(rest, 3, path)
    constants = dict(constant_buckets(facts.shard.number, facts.shard.labels))
    buckets = (constants[dimension],) if dimension in constants else BUCKETS.get(dimension, ())
    need(bucket in buckets, path, "is no bucket of this shard")
    need(dimension != "lag" or facts.shard.policy_version is not None, path, "needs a policy_version")
    (_CROSS if part == "cross" else _GAP).check(path, table)
    whole = facts.joint if part == "cross" else facts.count(part)
    need(0 < table["tokens"] <= whole, join(path, "tokens"), f"must be from 1 to {whole}")


def _check_divided(facts: Facts) -> None:
    """The buckets of a dimension have no more tokens together than the gap has."""
    sums: dict[tuple[str, str], float] = {}
    for name, table in facts.tables.items():
        if name.startswith("breakdown/"):
            _, dimension, _, part = name.split("/")
            sums[dimension, part] = sums.get((dimension, part), 0) + table["tokens"]
    for (dimension, part), tokens in sums.items():
        whole = facts.joint if part == "cross" else facts.count(part)
        need(tokens <= whole, join("tables", f"breakdown/{dimension}"), f"has {tokens} tokens of {whole}")


def _versions(facts: Facts, rest: Sequence[str], table: Table, path: str) -> None:
    (part,) = parts_of(rest, 1, path)
    need(part in ("spans", "lag"), path, "is no name of a table")
    spans = facts.tables.get("versions/spans", {})
    if part == "lag":
        need("lag" in spans, path, "needs versions/spans with its lag")
        check_sparse(path, table, 1 << 63, int(spans["sequences"]), least=-(1 << 63))
        return
    _SPANS.check(path, table)
    need(0 < table["sequences"] <= facts.whole["sequences"], join(path, "sequences"), "are not those of the batch")
    need(table["spans"] <= facts.whole["tokens"], join(path, "spans"), "are more than tokens")
    need(("lag" in table) == ("versions/lag" in facts.tables), path, "has its lag without versions/lag, or not")
    need("lag" not in table or facts.shard.policy_version is not None, path, "needs a policy_version")


def _sequence(facts: Facts, rest: Sequence[str], table: Table, path: str) -> None:
    (gap,) = parts_of(rest, 1, path)
    facts.check_gap(gap, path)
    _SEQUENCE.check(path, table)
    need(table["sequences"] == facts.count(gap, "sequences"), join(path, "sequences"), "are not those of the gap")


def _advantage(facts: Facts, rest: Sequence[str], table: Table, path: str) -> None:
    (gap,) = parts_of(rest, 1, path)
    facts.check_gap(gap, path)
    _ADVANTAGE.check(path, table)
    whole = facts.count(gap)
    need(table.get("tokens", whole) == whole, join(path, "tokens"), "are not those of the gap")
    need(f"gradient/{gap}" in facts.tables, path, f"needs gradient/{gap}")


def _gradient(facts: Facts, rest: Sequence[str], table: Table, path: str) -> None:
    (gap,) = parts_of(rest, 1, path)
    facts.check_gap(gap, path)
    check_sparse(path, table, GRADIENT_BINS, facts.count(gap))
    need(f"advantage/{gap}" in facts.tables, path, f"needs advantage/{gap}")


def _signature(facts: Facts, rest: Sequence[str], table: Table, path: str) -> None:
    name = "/".join(rest)
    forms = {"middle": _MIDDLE, "neighbours": _NEIGHBOURS, **{f"grid/{column}": _GRID for column in LEAST}}
    need(name in forms, path, "is no name of a table")
    forms[name].check(path, table)
    whole = facts.count("mismatch")
    for key in ("tokens", "pairs") if name in ("middle", "neighbours") else GRID_KEYS:
        need(table.get(key, 0) <= whole, join(path, key), "are more than the tokens of the mismatch")
    if name == "middle":
        need(table["tokens"] > 0, join(path, "tokens"), "must not be 0")
    if name == "neighbours":
        _check_squares(table, path)


def _check_squares(table: Table, path: str) -> None:
    need(table["pairs"] > 0, join(path, "pairs"), "must not be 0")
    for key in NEIGHBOUR_KEYS:
        need(not key.endswith("square") or table[key] >= 0, join(path, key), "must not be negative")


def _anchor(facts: Facts, rest: Sequence[str], table: Table, path: str) -> None:
    _row(facts, rest[:1], path)
    parts_of(rest, 1, path)
    _ANCHOR.check(path, table)
    need(0 < table["tokens"] <= facts.joint, join(path, "tokens"), f"must be from 1 to {facts.joint}")


def _length(facts: Facts, rest: Sequence[str], table: Table, path: str) -> None:
    gap, unit = parts_of(rest, 2, path)
    need(unit in ("sequences", "tokens"), path, "is no name of a table")
    facts.check_gap(gap, path)
    check_sparse(path, table, LENGTH_BINS, facts.count(gap, unit))
    need(table.keys() == facts.tables.get(f"length/{gap}/sequences", {}).keys(), path, "has lengths of no sequence")
    if unit == "tokens":
        for key, tokens in table.items():
            # A bin holds lengths from 2^(key / 4) on; rounding of the logarithm may move a length by one part in 10^6.
            least = facts.tables[f"length/{gap}/sequences"][key] * 2 ** (whole_number(key, path) / BINS_A_POWER)
            most = least * 2 ** (1 / BINS_A_POWER)
            near = math.floor(least * (1 - 1e-6)) <= tokens <= math.ceil(most * (1 + 1e-6))
            need(near, join(path, key), "does not fit the lengths of its sequences")


def _masked(facts: Facts, rest: Sequence[str], table: Table, path: str) -> None:
    row, gap, unit = parts_of(rest, 3, path)
    _row(facts, [row], path)
    method = facts.summary.methods[unquote(row)]
    need((method.spec or {}).get("gap") == gap and unit in ("sequences", "tokens"), path, "is not of its row's gap")
    facts.check_gap(gap, path)
    check_sparse(path, table, LENGTH_BINS, int(method.sums[f"masked_{unit}"]))
    units = facts.tables.get(f"length/{gap}/{unit}", {})
    for key, value in table.items():
        need(value <= units.get(key, 0), join(path, key), f"is more than all {unit} of this length")


def _row(facts: Facts, rest: Sequence[str], path: str) -> None:
    known = bool(rest) and unquote(rest[0]) in facts.summary.methods
    need(known, path, "is of no method of this summary")


#: Checks by the first part of a table's name.
KINDS: Final[Mapping[str, Check]] = {
    "breakdown": _breakdown,
    "versions": _versions,
    "sequence": _sequence,
    "advantage": _advantage,
    "gradient": _gradient,
    "signature": _signature,
    "anchor": _anchor,
    "length": _length,
    "masked": _masked,
    "routing": check_routing,
    "whatif": check_whatif,
}
