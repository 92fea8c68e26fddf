"""The makers of tables: what is kept of a batch beyond the core figures, one maker an idea.

A maker adds up arrays on the device, block by block, and names on the host what they came to. A new maker is a row
here, and a reader of its tables in summary.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from torch import Tensor

from offpolicy_monitor.batch import Array
from offpolicy_monitor.measure.advantages import weighted_sums, weighted_tables
from offpolicy_monitor.measure.anchors import anchor_sums, anchor_tables
from offpolicy_monitor.measure.breakdowns import breakdown_sums, breakdown_tables
from offpolicy_monitor.measure.lengths import length_sums, length_tables
from offpolicy_monitor.measure.routing import routing_part_sums, routing_tables
from offpolicy_monitor.measure.signature import signature_sums, signature_tables
from offpolicy_monitor.measure.versions import version_tables
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.measure.whatif import whatif_sums, whatif_tables

#: Tables by the keys that summary.layout declares, each with all of its rows.
Named = Iterator[tuple[str, Mapping[str, Any]]]


class Maker(NamedTuple):
    """An idea of what is kept.

    sums    of a block: arrays that add up over blocks, by names of their own
    tables  of what they came to, and any view of the batch
    gapless whether there are tables without a gap too
    in_pass whether the fused pass makes them as well; torch makes the others beside it
    """

    name: str
    sums: Callable[[BlockView], Mapping[str, Tensor]]
    tables: Callable[[Mapping[str, Array], BlockView], Named]
    gapless: bool = False
    in_pass: bool = False


def _versions(arrays: Mapping[str, Array], view: BlockView) -> Named:
    """On the host alone: versions are no log-probs."""
    return version_tables(view.block.batch.source, view.origin.policy_version)


def _nothing(view: BlockView) -> Mapping[str, Tensor]:
    return {}


BREAKDOWNS: Final = Maker("breakdowns", breakdown_sums, breakdown_tables, in_pass=True)
VERSIONS: Final = Maker("versions", _nothing, _versions, gapless=True, in_pass=True)
WEIGHTED: Final = Maker("advantages", weighted_sums, weighted_tables, in_pass=True)
SIGNATURE: Final = Maker("signature", signature_sums, signature_tables, in_pass=True)
ROUTING: Final = Maker("routing", routing_part_sums, routing_tables, gapless=True)
ANCHORS: Final = Maker("anchors", anchor_sums, anchor_tables, in_pass=True)
LENGTHS: Final = Maker("lengths", length_sums, length_tables, in_pass=True)
WHATIF: Final = Maker("whatif", whatif_sums, whatif_tables, in_pass=True)

#: Tables of the data: made of every batch.
OF_DATA: Final[tuple[Maker, ...]] = (BREAKDOWNS, VERSIONS, WEIGHTED, SIGNATURE, ROUTING)

#: Tables of the rows' decisions: made of ingested batches, whose rows are few.
OF_METHODS: Final[tuple[Maker, ...]] = (ANCHORS, LENGTHS, WHATIF)
