"""Mismatch lag: the mark of a mismatch that has version lag in it.

An asynchronous trainer recomputes pi_old with the weights that it has now, for tokens that older ones sampled: their
mismatch is how engine and trainer differ, and how far the policy went in between. Read off `breakdown/lag/mismatch`.
"""

from typing import Any, Final

from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.figure import Figure
from offpolicy_monitor.summary.kind import Kind
from offpolicy_monitor.summary.tables.buckets import LAG_BUCKETS

#: The first bucket of lag whose tokens are older than the current policy.
OLDER: Final = LAG_BUCKETS.index("1")


def mismatch_lag(arrays: Arrays) -> dict[str, Any] | None:
    """How many of the mismatch's tokens are at least one version old, and k3 with and without them; None where none is.

    `token_fraction` is of the tokens whose version is known. `k3_current` is absent where all of them are older.
    """
    if "breakdown/lag/mismatch" not in arrays:
        return None
    columns = arrays.columns("breakdown/lag/mismatch")
    tokens, k3 = columns["tokens"].tolist(), columns["k3"].tolist()
    older, current = sum(tokens[OLDER:]), sum(tokens[:OLDER])
    if not older:
        return None
    figures = {"tokens": older, "token_fraction": older / (older + current), "k3": sum(k3[OLDER:]) / older}
    return figures | ({"k3_current": sum(k3[:OLDER]) / current} if current else {})


FIGURES: Final = (
    Figure("tokens", "tokens", "of the mismatch, sampled by an older version than `policy_version`"),
    Figure("token_fraction", "share of tokens", "their share of those of known version", headline=True),
    Figure(
        "k3", "nats", "mean mismatch k3 of these tokens: with lag in it where the newest weights recomputed pi_old",
        headline=True,
    ),
    Figure("k3_current", "nats", "of the tokens that are not older: without lag", headline=True),
)  # fmt: skip

KIND: Final = Kind(
    "mismatch_lag",
    (),
    mismatch_lag,
    FIGURES,
    "Only where older weights sampled tokens of the mismatch.",
    of_shards=True,
)
