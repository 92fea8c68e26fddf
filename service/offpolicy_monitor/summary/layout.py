"""The layout of a summary: every table that there is, in the order in which they stand in its buffer.

A table is declared by the module that reads its figures; this one puts them together. `LAYOUT.at("gaps/total")` is the
declared table at a path.
"""

from typing import Final

from offpolicy_monitor.summary import batch, gap, method
from offpolicy_monitor.summary.rows import Layout
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
