"""The layout of a summary: every table that there is, in the order in which they stand in its buffer.

A table is declared by the module that reads its figures; those of kinds of tables come from their catalogue, and of
those what is counted with the batch stands by it. `LAYOUT.at("gaps/total")` is the declared table at a path.
"""

from typing import Final

from offpolicy_monitor.summary import batch, gap, method
from offpolicy_monitor.summary.rows import Layout
from offpolicy_monitor.summary.tables import KINDS

LAYOUT: Final = Layout(
    (
        *batch.TABLES,
        *(table for kind in KINDS if not kind.measured for table in kind.tables),
        *gap.TABLES,
        *method.TABLES,
        *(table for kind in KINDS if kind.measured for table in kind.tables),
    )
)
