"""The names in the paths of a posted summary: rows that it has the specs of, and the dimensions of its own shard.

What the layout declares is looked up before any array is made. Knows no number, and no kind by name.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import unquote

from offpolicy_monitor.summary.checks.shard import Shard
from offpolicy_monitor.summary.faults import need, printable
from offpolicy_monitor.summary.kind import Named
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.remembered import remembering
from offpolicy_monitor.summary.rows import PART
from offpolicy_monitor.summary.scheme import MOST_WEIGHT, OF_BASE
from offpolicy_monitor.summary.tables import KINDS
from offpolicy_monitor.summary.tables.buckets import constant_buckets


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
    _check_keys(tuple(keys), tuple(specs), constants)


@remembering(lambda made, keys, *beside: len(keys) // OF_BASE, MOST_WEIGHT)
def _check_keys(keys: tuple[str, ...], methods: tuple[str, ...], constants: tuple[tuple[str, str], ...]) -> None:
    """Of what has passed it is remembered that it has: most shards have the tables of those of the step before."""
    need(len(set(keys)) == len(keys), "tables", "repeat")
    beside = Beside(frozenset(methods), dict(constants), {})
    for key in keys:
        path, _, part = key.partition(PART)
        declared = [table.declared for table in LAYOUT.parts(path) if table.part == part]
        need(bool(declared), printable(key), "is no name of a table")
        for check in chain.from_iterable(map(_checks, declared)):
            check(path.split("/"), beside, printable(key))


class Beside(NamedTuple):
    """The methods, and the bucket of each dimension of which the shard is one.

    `said` is what kinds keep of the names before.
    """

    methods: frozenset[str]
    constants: Mapping[str, str]
    said: dict[Any, Any]


@cache
def _checks(key: str) -> Sequence[Named]:
    """What is checked of the names in the path of a table that is declared at this key."""
    indices = [index for index, part in enumerate(key.partition(PART)[0].split("/")) if part == "{row}"]
    kinds = [kind.named for kind in KINDS if kind.named is not None and key in (table.key for table in kind.tables)]
    return *(partial(_row, index) for index in indices), *kinds


def _row(index: int, parts: Sequence[str], beside: Beside, path: str) -> None:
    need(unquote(parts[index]) in beside.methods, path, "is of no method of this summary")
