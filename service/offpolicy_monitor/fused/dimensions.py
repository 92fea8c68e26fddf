"""The ways in which tokens are divided for breakdowns, by their names: the dimensions of a part, in the order of its
sums. runs.py says in which bucket of each a run, or a sequence, stands; by mu and by sign the pass itself divides."""

from dataclasses import dataclass
from typing import Final

from offpolicy_monitor.summary.tables.buckets import BUCKETS


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
LENGTH, POSITION, LAG, TURN = map(_dimension, ("length", "position", "lag", "turn"))
#: Stands in for the dimensions in which a whole shard is one bucket: with a slash and a number.
CONSTANT: Final = "constant"


def constant(number: int) -> Dimension:
    """A dimension in which a whole shard is one bucket."""
    return Dimension(f"{CONSTANT}/{number}", 0)
