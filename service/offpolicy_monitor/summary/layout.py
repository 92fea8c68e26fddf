"""The layout of a summary: every table that there is, in the order in which they stand in its buffer.

A table is declared by the module that reads its figures; this one puts them together. `LAYOUT.at("gaps/total")` is the
declared table at a path.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from offpolicy_monitor.summary import batch, gap, method
from offpolicy_monitor.summary.rows import PART, Table
from offpolicy_monitor.summary.tables import (
    advantage,
    anchors,
    breakdown,
    lengths,
    routing,
    signature,
    versions,
    whatif,
)

#: What a name in a path may stand for; any other name for any text without a slash.
GAPS: Final = ("mismatch", "staleness", "total")
NAMES: Final[Mapping[str, frozenset[str]]] = {"{gap}": frozenset(GAPS)}

#: The stored version in which a summary is its arrays; a row that is added takes the next.
VERSION: Final = 3

#: Places of tables that are looked up again and again; those of hosts and labels come and go.
REMEMBERED: Final = 1 << 13


class Layout:
    """Tables by the keys at which a summary may have them. A key is a path, and the part of a table after PART.

    `version`: the newest stored version that any of them is of.
    """

    def __init__(self, tables: Iterable[Table]) -> None:
        self.tables = tuple(tables)
        self.version = max(VERSION, *(row.since for table in self.tables for row in table.rows))
        self._by_length: dict[tuple[str, int], list[Table]] = {}
        for table in self.tables:
            parts = table.path.split("/")
            self._by_length.setdefault((parts[0], len(parts)), []).append(table)
        self.parts = lru_cache(REMEMBERED)(self._parts)

    def at(self, key: str) -> Table:
        """The table at a key, with the names of its path filled in; KeyError where none is declared there."""
        path, _, part = key.partition(PART)
        for table in self.parts(path):
            if table.part == part:
                return table
        raise KeyError(key)

    def _parts(self, path: str) -> tuple[Table, ...]:
        """The tables that make the record at a path; none where none is declared."""
        parts = path.split("/")
        known = self._by_length.get((parts[0], len(parts)), ())
        return tuple(table.at(path) for table in known if _fits(table.path.split("/"), parts))


def _fits(pattern: list[str], parts: list[str]) -> bool:
    return all(
        part in NAMES.get(name, (part,)) if name.startswith("{") else name == part
        for name, part in zip(pattern, parts, strict=True)
    )


LAYOUT: Final = Layout(
    (
        *batch.TABLES,
        *gap.TABLES,
        *method.TABLES,
        *breakdown.TABLES,
        *versions.TABLES,
        *advantage.TABLES,
        *signature.TABLES,
        *routing.TABLES,
        *anchors.TABLES,
        *lengths.TABLES,
        *whatif.TABLES,
    )
)
