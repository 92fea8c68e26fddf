"""Kind: all that there is to say of a kind of table. The catalogue of kinds is `summary.tables.KINDS`.

From its row follow the layout, the stored form, the checks, the fields of a step and what the API's docs say of them,
the rows of the catalogue of figures, and what makes its tables of a batch. Knows no kind by name.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.figure import Figure
from offpolicy_monitor.summary.records import Figures, Formulas, Wanted
from offpolicy_monitor.summary.rows import POLICY_VERSION, STAND_FOR, Table
from offpolicy_monitor.summary.scheme import Scheme
from offpolicy_monitor.vocabulary import LOGPROBS

if TYPE_CHECKING:
    from offpolicy_monitor.summary.checks.facts import Facts
    from offpolicy_monitor.summary.checks.glance import Glance
    from offpolicy_monitor.summary.checks.names import Beside

#: Given the parts of a table's path, and the path as it is told.
Check = Callable[["Facts", Sequence[str], str], None]
#: What is checked of the table of a path, and the parts of the path.
Looked = tuple[Check, Sequence[str]]
#: Says what a glance sees of a table; False where it cannot.
See = Callable[[Scheme, "Glance[Looked]", Looked], bool]
Named = Callable[[Sequence[str], "Beside", str], None]


class OfMethods(NamedTuple):
    """What a kind tells of method rows: of R records, each of one row.

    names    the row of each
    figures  [R] each, by name
    told     of which of them it is told, by the tokens that each row had
    members  what a record is for its row's answer, by its number and its figures
    key      equal where `members` makes the same
    """

    names: tuple[str, ...]
    figures: Figures
    told: Callable[[Mapping[str, float]], Sequence[bool]]
    members: Callable[[int, Mapping[str, Any]], Mapping[str, Any]]
    key: Hashable


@dataclass(frozen=True)
class Kind:
    """A kind of table.

    name       what it is called, and the field of a step that it answers, if it answers one
    tables     what is kept
    read       the value of that field; None where a kind's figures stand among those of gaps or methods
    unnamed    whether its values are fields of a step themselves; they are answered whatever is wanted
    figures    the figures of that field, by their paths below it
    when       in which answers that field is, in a sentence of the API's docs; empty where there is nothing to add
    of_gaps    figures of gaps, by the first part of the path of its tables `.../{gap}` that they are formulas of
    of_sequences  the same of the sequences of gaps
    made_of_gaps  further figures of gaps, of those that are wanted
    of_methods  figures of method rows of these names, of those that are wanted
    total      whether `read` can be made of any numbers that pass the checks of a summary
    of_shards  whether an answer about a shard has the field too, where it is neither None nor empty
    measured   the module that makes the tables; empty where they are counted with the batch (measure.counts), or a kind
               is read off the tables of others. It has
               `tables_of(arrays, view)`, the tables that a batch comes to, by the keys of the layout, and where tokens
               are summed `sums_of(view)`, arrays of a block that add up over blocks, by names of their own, and where
               sequences are `terms_of(view)`, arrays whose last dimension is the block's sequences, over which they
               are summed; `view` is a measure.view.BlockView. It is imported when a batch is measured, and not before,
               since most need torch
    gapless    whether there are tables without a gap too, and of one without a token
    ingested   whether the tables are of ingested batches alone: /v1/evaluate, whose rows are many, answers none of them
    lost       whether a step that shares its summary answers the field empty: it is not among what is kept of each step
    marks      in place of `read` the field's parts by name, each made where somebody wants it; empty ones are left out
    looked_at  paths of tables that its headline figures are read off, whoever's they are
    check      raises InvalidSummaryError where a table of its cannot stand beside the others; what rows say, and what
               follows from a path with a gap or a method row in it, was checked before
    see        the same of all tables at once; without it `check` is asked about each
    named      raises InvalidSummaryError where names in the path of a table are not of this shard
    """

    name: str
    tables: tuple[Table, ...] = ()
    read: Callable[[Arrays], Any] | None = None
    figures: tuple[Figure, ...] = ()
    when: str = ""
    unnamed: bool = False
    of_gaps: Mapping[str, Formulas] = field(default_factory=dict)
    of_sequences: Mapping[str, Formulas] = field(default_factory=dict)
    made_of_gaps: Callable[[Arrays, Sequence[str], Wanted], Figures] | None = None
    of_methods: Callable[[Arrays, tuple[str, ...], Wanted], OfMethods] | None = None
    total: bool = False
    of_shards: bool = False
    measured: str = ""
    gapless: bool = False
    ingested: bool = False
    lost: bool = False
    marks: Mapping[str, Callable[[Arrays], Any]] = field(default_factory=dict)
    looked_at: tuple[str, ...] = ()
    check: Check | None = None
    see: See | None = None
    named: Named | None = None

    @cached_property
    def sent(self) -> frozenset[str]:
        """Arrays of which one must have been sent for there to be tables; empty for any batch, of any log-probs."""
        needed = [{array for name in table.needs for array in STAND_FOR.get(name, (name,))} for table in self.tables]
        beside = [arrays - {*LOGPROBS, POLICY_VERSION} for arrays in needed]
        return frozenset[str]().union(*beside) if all(beside) else frozenset()
