"""The kinds of table, one row each, in the order of the layout and of an answer; what each is, its module says."""

from typing import Final

from offpolicy_monitor.summary.kind import Kind
from offpolicy_monitor.summary.tables import (
    advantage,
    anchors,
    breakdown,
    calibration,
    decimals,
    density,
    lengths,
    longest,
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
    longest.KIND,
    breakdown.KIND,
    outliers.KIND,
    versions.KIND,
    mismatch_lag.KIND,
    advantage.KIND,
    calibration.KIND,
    decimals.KIND,
    noise_floor.KIND,
    support.KIND,
    signature.KIND,
    routing.KIND,
    anchors.KIND,
    lengths.KIND,
    whatif.KIND,
    density.KIND,
)
