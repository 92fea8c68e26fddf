"""The kinds of table, one row each, in the order of the layout; what each is, its module says."""

from typing import Final

from offpolicy_monitor.summary.kind import Kind
from offpolicy_monitor.summary.tables import (
    advantage,
    anchors,
    breakdown,
    calibration,
    density,
    lengths,
    mismatch_lag,
    noise_floor,
    outliers,
    routing,
    signature,
    support,
    versions,
    whatif,
)

KINDS: Final[tuple[Kind, ...]] = (
    breakdown.KIND,
    outliers.KIND,
    versions.KIND,
    mismatch_lag.KIND,
    advantage.KIND,
    calibration.KIND,
    noise_floor.KIND,
    support.KIND,
    signature.KIND,
    routing.KIND,
    anchors.KIND,
    lengths.KIND,
    whatif.KIND,
    density.KIND,
)
