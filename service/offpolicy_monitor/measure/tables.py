"""The makers of tables: what makes those of each kind that summary.tables declares.

A maker adds up arrays on the device, block by block, and names on the host what they came to.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

from torch import Tensor

from offpolicy_monitor.batch import Array, RaggedBatch
from offpolicy_monitor.core.scores import Score
from offpolicy_monitor.measure.differences import Asked
from offpolicy_monitor.measure.totals import Counted
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.summary.kind import Kind
from offpolicy_monitor.summary.tables import KINDS

#: Tables by the keys that summary.layout declares, each with all of its rows.
Named = Iterator[tuple[str, Mapping[str, Any]]]


class Maker(NamedTuple):
    """What makes the tables of a kind.

    sums     of a block, by names of their own: arrays that add up over blocks, or what is added up by cells; None where
             nothing is summed
    terms    of a block: arrays whose last dimension is its sequences, over which they add up, by names of their own
    tables   of what they came to, and any view of the batch
    sent     arrays of which one must have been sent; empty for any batch
    gapless  whether there are tables without a gap too
    binned   of the gaps that were sent and the rows: scores of tokens whose bins are looked at beside the log-ratios'
    asked    of the columns that were sent: what is asked of differences of log-probs that are no gap's
    """

    name: str
    sums: Callable[[BlockView], Counted] | None
    tables: Callable[[Mapping[str, Array], BlockView], Named]
    terms: Callable[[BlockView], Mapping[str, Tensor]] | None = None
    sent: frozenset[str] = frozenset()
    gapless: bool = False
    binned: Callable[[Sequence[str], Sequence[MethodRow]], Sequence[Score]] | None = None
    asked: Callable[[Collection[str]], Asked] | None = None

    @classmethod
    def of(cls, kind: Kind) -> "Maker":
        """The maker of a kind that is measured."""
        module = import_module(kind.measured)
        sums, terms, binned, asked = (
            getattr(module, name, None) for name in ("sums_of", "terms_of", "binned", "asked")
        )
        return cls(kind.name, sums, module.tables_of, terms, kind.sent, kind.gapless, binned, asked)

    def makes_any(self, batch: RaggedBatch) -> bool:
        """Whether a batch brings what its tables are of."""
        return not self.sent or not self.sent.isdisjoint(batch.columns)


#: Tables of every batch.
OF_DATA: Final = tuple(Maker.of(kind) for kind in KINDS if kind.measured and not kind.ingested)
#: Tables of batches that are ingested, whose rows are few.
OF_INGESTED: Final = tuple(Maker.of(kind) for kind in KINDS if kind.measured and kind.ingested)
MAKERS: Final = (*OF_DATA, *OF_INGESTED)
