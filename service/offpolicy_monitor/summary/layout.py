"""The layout of a summary: every table that there is, in the order in which they stand in its buffer.

A table is declared by the module that reads its figures; those of kinds of tables come from their catalogue.
`LAYOUT.at("gaps/total")` is the declared table at a path.
"""

from typing import Final

from offpolicy_monitor.summary import batch, gap, method
from offpolicy_monitor.summary.rows import Layout
from offpolicy_monitor.summary.tables import KINDS, calibration, decimals, longest

LAYOUT: Final = Layout(
    (
        *batch.TABLES,
        calibration.TABLE,
        decimals.TABLE,
        longest.TABLE,
        longest.BY_LENGTH,
        *gap.TABLES,
        *method.TABLES,
        *(table for kind in KINDS for table in kind.tables),
    )
)
