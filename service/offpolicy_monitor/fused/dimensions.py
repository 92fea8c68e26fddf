"""The ways in which tokens are divided for breakdowns: the dimensions of a batch, and the buckets of its sequences.

What changes within sequences is divided by runs (runs.py), by mu and by sign in the pass itself.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.fused import runs
from offpolicy_monitor.summary.tables.buckets import BUCKETS, LAGS, constant_buckets

Array = NDArray[Any]


@dataclass(frozen=True)
class Dimension:
    """A dimension by its path among breakdowns, and how many buckets it has; 0 where its only one is in the path.

    A number beyond the buckets stands for what belongs to none.
    """

    path: str
    buckets: int


def _dimension(name: str) -> Dimension:
    return Dimension(name, len(BUCKETS[name]))


MU: Final = _dimension("mu_probability")
SIGN: Final = _dimension("advantage_sign")


def of_runs(batch: RaggedBatch, origin: Origin) -> list[Dimension]:
    """The dimensions of runs.runs_of, in its order."""
    found = [_dimension("position")]
    if "policy_versions" in batch.a_token and origin.policy_version is not None:
        found.append(_dimension("lag"))
    if "turns" in batch.a_token:
        found.append(_dimension("turn"))
    return found


def of_sequences(batch: RaggedBatch, origin: Origin) -> tuple[list[Dimension], Array]:
    """The dimensions that stand at sequences, and the bucket of each sequence [S, dimensions] int64."""
    lengths = np.diff(batch.offsets)
    found = [_dimension("length")]
    columns: list[Array] = [np.frexp(lengths.astype(np.float64))[1] - 1]
    for name in ("advantages", "turns", "policy_versions"):
        if name not in batch.columns or name in batch.a_token:
            continue
        values = batch.columns[name]
        if name == "advantages":
            found.append(SIGN)
            columns.append(np.sign(values) + 1)
        elif name == "turns":
            found.append(_dimension("turn"))
            columns.append(np.where(values < 0, runs.NO_TURN, np.minimum(values, runs.NO_TURN - 1)))
        elif origin.policy_version is not None:
            lags = np.clip(origin.policy_version - values.astype(np.int64), -1, LAGS) + 1
            found.append(_dimension("lag"))
            columns.append(np.where(values < 0, runs.NO_LAG, lags))
    for name, bucket in constant_buckets(origin.shard, origin.labels):
        found.append(Dimension(f"{name}/{bucket}", 0))
        columns.append(np.zeros(len(lengths)))
    return found, np.ascontiguousarray(np.stack(columns, 1).astype(np.int64))
