"""The makers of tables: what is kept of a block beyond the core figures, one maker an idea.

A maker is a pure function of a block and what was decided about it; its tables are added up over blocks, shards and
steps. A new maker is a row here, and a reader of its tables in summary.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from torch import Tensor

from offpolicy_monitor.batch import Origin
from offpolicy_monitor.core.decision import Decision
from offpolicy_monitor.measure.advantages import weighted
from offpolicy_monitor.measure.anchors import anchors
from offpolicy_monitor.measure.blocks import Block, ValidTokens
from offpolicy_monitor.measure.breakdowns import breakdowns
from offpolicy_monitor.measure.lengths import lengths
from offpolicy_monitor.measure.routing import routing
from offpolicy_monitor.measure.signature import signature
from offpolicy_monitor.measure.versions import version_spans
from offpolicy_monitor.measure.whatif import whatif
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.summary.named import Tables


@dataclass(frozen=True, eq=False)
class BlockView:
    """A block, the valid tokens of each gap that has any, what each row decided about its gap, and the origin.

    log_ratio_bins  gap -> [T] int32: the bins of summary.histogram in which the valid tokens' log-ratios lie
    """

    block: Block
    valid: Mapping[str, ValidTokens]
    log_ratio_bins: Mapping[str, Tensor]
    decisions: Sequence[tuple[MethodRow, Decision]]
    origin: Origin


Maker = Callable[[BlockView], Tables]

#: Tables of the data: made of every batch.
OF_DATA: Final[tuple[Maker, ...]] = (breakdowns, version_spans, weighted, signature, routing)

#: Tables of the rows' decisions: made of ingested batches, whose rows are few.
OF_METHODS: Final[tuple[Maker, ...]] = (anchors, lengths, whatif)


def tables_of(view: BlockView, makers: Sequence[Maker]) -> Tables:
    """All tables of a block."""
    return {path: table for make in makers for path, table in make(view).items()}
