"""Outliers: the shard, engine or GPU whose mismatch stands out from the others', read off the breakdown tables.

One stale replica or one faulty device raises the mean of all a little and its own a lot. Only dimensions that say where
tokens were computed are compared: that two environments differ is no fault.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import median
from typing import Any, Final

from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.figure import Figure
from offpolicy_monitor.summary.kind import Kind
from offpolicy_monitor.summary.scheme import REMEMBERED, Scheme
from offpolicy_monitor.summary.sums import Sums
from offpolicy_monitor.summary.tables.breakdown import buckets

#: Label names that say where a shard was sampled or trained.
MACHINES: Final = frozenset({"engine", "gpu", "device", "host", "node", "rank", "replica", "server", "worker"})

#: The spread of k3 is this many times its mean, if tokens were independent: it differs between sequences, of which a
#: small shard has few (measured on shards of 4 to 1,000 sequences).
RELATIVE_SPREAD: Final = 60.0
STANDARD_ERRORS: Final = 4.0


def outliers(arrays: Arrays) -> dict[str, Any]:
    """{gap: {"ratio", "dimension", "bucket", "k3"}}: the bucket of largest k3 over the median of the other buckets'.

    The excess must be more than sampling explains, with RELATIVE_SPREAD * k3 / sqrt(tokens) for a standard error; the
    ratio is 1 where none is. A gap is left out where no dimension of MACHINES, nor the shards, has two buckets.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for gap, dimension in _compared(arrays.scheme):
        means = {name: _mean(sums) for name, sums in buckets(arrays, dimension, gap).items()}
        if len(means) > 1:
            found.setdefault(gap, []).append(_worst(dimension, means))
    return {gap: max(rows, key=lambda row: row["ratio"]) for gap, rows in found.items()}


@lru_cache(REMEMBERED)
def _compared(scheme: Scheme) -> Sequence[tuple[str, str]]:
    """(gap, dimension) of machines that may have two buckets: none of most shards by themselves."""
    tables = [tuple(path.split("/")) for path in scheme.under("breakdown")]
    count = Counter((dimension, gap) for _, dimension, *_, gap in tables)
    machines = [dimension for dimension in dict.fromkeys(of for _, of, *_ in tables) if _is_machine(dimension)]
    gaps = [path.removeprefix("gaps/") for path in scheme.under("gaps")]
    return [(gap, dimension) for gap in gaps for dimension in machines if count[dimension, gap] > 1]


def _mean(sums: Sums) -> tuple[float, float]:
    """k3 and over how many tokens."""
    return sums["k3"] / sums["tokens"], sums["tokens"]


def _is_machine(dimension: str) -> bool:
    return dimension == "shard" or dimension.removeprefix("label:").lower() in MACHINES


def _worst(dimension: str, means: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    bucket = max(means, key=lambda name: means[name][0])
    k3, tokens = means[bucket]
    usual = median(other for name, (other, _) in means.items() if name != bucket)
    error = STANDARD_ERRORS * RELATIVE_SPREAD * usual / math.sqrt(tokens)
    stands_out = usual > 0 and k3 > usual + error
    return {"ratio": k3 / usual if stands_out else 1.0, "dimension": dimension, "bucket": bucket, "k3": k3}


FIGURES: Final = (
    Figure(
        "{gap}.ratio", "ratio", "largest k3 of a shard or machine over the median of the others",
        headline=("mismatch", "total"),
    ),
    Figure("{gap}.k3", "nats", "that largest k3"),
)  # fmt: skip

KIND: Final = Kind("outliers", (), outliers, FIGURES)
