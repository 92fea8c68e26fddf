"""The names in the paths of a posted summary: rows that it has the specs of, and the dimensions of its own shard.

What the layout declares is looked up before any array is made. Knows no number.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from offpolicy_monitor.summary.checks.faults import need, printable
from offpolicy_monitor.summary.checks.shard import Shard
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.remembered import remembering
from offpolicy_monitor.summary.rows import PART
from offpolicy_monitor.summary.scheme import MOST_WEIGHT, OF_BASE
from offpolicy_monitor.summary.tables import routing
from offpolicy_monitor.summary.tables.buckets import BUCKETS, constant_buckets


def check_names(keys: Collection[str], specs: Any, shard: Shard) -> None:
    """Raise InvalidSummaryError for a table that is not declared, or not of this summary or its shard."""
    need(isinstance(specs, dict), "specs", "must be an object")
    over = f"{len(specs)} rows are over the limit of {shard.most_rows}; raise OFFPOLICY_MAX_RUN_METHODS to allow them"
    need(len(specs) <= shard.most_rows, "specs", over)
    for name, spec in specs.items():
        need(isinstance(spec, dict), f"specs.{printable(name)}", "must be an object")
    number, most = len(keys), shard.most_tables
    over = f"{number} is over the limit of {most}; raise OFFPOLICY_MAX_SUMMARY_TABLES to allow it"
    need(number <= most, "tables", over)
    constants = tuple(constant_buckets(shard.number, shard.labels))
    _check_keys(tuple(keys), tuple(specs), constants, shard.policy_version is None)


@remembering(lambda made, keys, *beside: len(keys) // OF_BASE, MOST_WEIGHT)
def _check_keys(
    keys: tuple[str, ...], methods: tuple[str, ...], constants: tuple[tuple[str, str], ...], unknown: bool
) -> None:
    """Of what has passed it is remembered that it has: most shards have the tables of those of the step before."""
    need(len(set(keys)) == len(keys), "tables", "repeat")
    _check_shapes(keys)
    beside = Beside(frozenset(methods), dict(constants), unknown)
    for key in keys:
        path, _, part = key.partition(PART)
        declared = [table for table in LAYOUT.parts(path) if table.part == part]
        need(bool(declared), printable(key), "is no name of a table")
        parts = path.split("/")
        _OF_KIND.get(parts[0], _nothing)(parts, beside, printable(key))


def _check_shapes(keys: Collection[str]) -> None:
    """The experts of a shard have one number of layers and one k: tables of others are refused before they are made."""
    shapes: dict[str, Sequence[str]] = {}
    for key in keys:
        kind, *parts = key.split("/")
        if kind == routing.PREFIX and len(parts) > len(("gap", "counts")):
            gap, _, *shape = parts
            need(shapes.setdefault(gap, shape) == shape, printable(key), "is of another shape of experts")


class Beside(NamedTuple):
    """The methods, the bucket of each dimension of which the shard is one, and whether it has no version."""

    methods: frozenset[str]
    constants: Mapping[str, str]
    has_no_version: bool


def _row(parts: Sequence[str], beside: Beside, path: str) -> None:
    need(unquote(parts[1]) in beside.methods, path, "is of no method of this summary")


def _dimension(parts: Sequence[str], beside: Beside, path: str) -> None:
    _, dimension, *bucket, _ = parts
    own = [beside.constants[dimension]] if dimension in beside.constants else []
    need(not bucket or bucket == own or bucket[0] in BUCKETS.get(dimension, ()), path, "is no bucket of this shard")
    need(dimension != "lag" or not beside.has_no_version, path, "needs a policy_version")


def _nothing(parts: Sequence[str], beside: Beside, path: str) -> None:
    """Nothing but the layout."""


Check = Callable[[Sequence[str], Beside, str], None]
#: Checks by the first part of a path.
_OF_KIND: Final[Mapping[str, Check]] = {
    "methods": _row,
    "anchor": _row,
    "masked": _row,
    "breakdown": _dimension,
}
