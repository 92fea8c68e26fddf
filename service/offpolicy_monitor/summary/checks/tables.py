"""The tables of a summary beside each other: what one needs of another, and what its numbers cannot be.

What rows say of themselves is checked before. What follows from how a table is declared is checked here: a gap in its
path has tokens, and is that of a method row there. The rest its kind checks. Knows no kind by name.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Final, NamedTuple
from urllib.parse import unquote

from offpolicy_monitor.summary.checks.facts import Facts
from offpolicy_monitor.summary.checks.glance import Glance
from offpolicy_monitor.summary.faults import need, printable
from offpolicy_monitor.summary.kind import Check, Looked, See
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.remembered import remembering
from offpolicy_monitor.summary.rows import PART
from offpolicy_monitor.summary.scheme import MOST_WEIGHT, Scheme
from offpolicy_monitor.summary.tables import KINDS
from offpolicy_monitor.vocabulary import GAPS

_REQUIRED: Final = tuple(table.path for table in LAYOUT.tables if table.required)


def check_tables(facts: Facts) -> None:
    """Raise InvalidSummaryError for a table that cannot stand beside the others."""
    for check, parts in doubtful(facts):
        check(facts, parts, printable("/".join(parts)))
    arrays = facts.arrays
    for gap in filter(facts.count, facts.summary.gaps):
        for path in (path.format(gap=gap) for path in _REQUIRED):
            needed = gap in path.split("/") and path not in arrays.absent
            need(not needed or path in arrays, path, "required")


class Seen(NamedTuple):
    """Tables of a scheme: what is checked of them, the gaps that must have tokens, rows with their gaps, the glance."""

    looked: Sequence[Looked]
    of_gaps: frozenset[str]
    of_rows: frozenset[tuple[str, str]]
    glance: Glance[Looked]


def doubtful(facts: Facts) -> Iterator[Looked]:
    """The tables to be looked at one by one: all where a gap is not what they need, else those that may be at fault."""
    scheme, summary = facts.arrays.scheme, facts.summary
    tokens = {gap for gap in summary.gaps if facts.count(gap) > 0}
    gaps = {(name, (spec or {}).get("gap")) for name, spec in summary.specs.items()}
    found = [seen(part) for part in dict.fromkeys((scheme.base, scheme))]
    if all(part.of_gaps <= tokens and part.of_rows <= gaps for part in found):
        return chain.from_iterable(part.glance.doubtful(facts.arrays) for part in found)
    return chain.from_iterable(part.looked for part in found)


@remembering(lambda made, scheme: scheme.weight, MOST_WEIGHT)
def seen(scheme: Scheme) -> Seen:
    """Of tables that the base lacks; of a base, of all of its tables."""
    tables = {table.path: table for table in map(scheme.tables.__getitem__, scheme.mine)}
    found = [
        (of, path.split("/")) for path, table in tables.items() if (of := _beyond_rows(table.declared)) is not None
    ]
    glance, looked = Glance[Looked](), [(of.check, parts) for of, parts in found]
    for (of, _), one in zip(found, looked, strict=True):
        if not of.see(scheme, glance, one):
            glance.always(one)
    of_gaps = [(of, parts, parts[of.gap]) for of, parts in found if of.gap is not None]
    of_rows = [(unquote(parts[of.row]), gap) for of, parts, gap in of_gaps if of.row is not None]
    return Seen(looked, frozenset(gap for *_, gap in of_gaps), frozenset(of_rows), glance)


@dataclass(frozen=True)
class _BeyondRows:
    """What is checked of the tables that are declared at a path.

    gap     the index in the path of the gap that has tokens, if any
    row     and that of a method row
    filled  the row that is never 0, if there is one
    kinds   what kinds check beside this, and see
    """

    gap: int | None
    row: int | None
    filled: str | None
    kinds: Sequence[tuple[Check, See | None]]

    def check(self, facts: Facts, parts: Sequence[str], path: str) -> None:
        """Raise InvalidSummaryError where a table at the path of these parts cannot stand beside the others."""
        if self.gap is not None:
            if self.row is not None:
                spec = facts.summary.specs[unquote(parts[self.row])]
                need((spec or {}).get("gap") == parts[self.gap], path, "is not of its row's gap")
            facts.check_gap(parts[self.gap], path)
        if self.filled is not None:
            number = facts.arrays.record("/".join(parts)).get(self.filled, 0)
            need(number > 0, f"{path}/{self.filled}", "must not be 0")
        for check, _ in self.kinds:
            check(facts, parts, path)

    def see(self, scheme: Scheme, glance: Glance[Looked], looked: Looked) -> bool:
        """Let the glance see the same; False where it cannot. Gaps and rows are seen to by `doubtful`."""
        for _, see in self.kinds:
            if see is None or not see(scheme, glance, looked):
                return False
        if self.filled is not None:
            entry = scheme.spans.get("/".join((*looked[1], self.filled)))
            if entry is None:
                return False
            glance.positive(looked, entry)
        return True


@cache
def _beyond_rows(key: str) -> _BeyondRows | None:
    """Of the tables that are declared at the path of this key; None where they are of no kind."""
    path = key.partition(PART)[0]
    kinds = [kind for kind in KINDS if path in (table.path for table in kind.tables)]
    tables = [table for kind in kinds for table in kind.tables if table.path == path]
    if not kinds:
        return None
    indices = {"{gap}" if part in GAPS else part: index for index, part in enumerate(path.split("/"))}
    return _BeyondRows(
        None if any(kind.gapless for kind in kinds) else indices.get("{gap}"),
        indices.get("{row}"),
        next((table.rows[0].name for table in tables if table.filled), None),
        [(kind.check, kind.see) for kind in kinds if kind.check is not None],
    )
