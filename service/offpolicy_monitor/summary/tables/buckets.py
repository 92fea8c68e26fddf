"""The names of breakdown buckets, by dimension: what a table `breakdown/<dimension>/<bucket>/...` may be called.

Shared by the maker of breakdowns and by the checks of summaries that come from elsewhere. Knows no tokens.
"""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote

from offpolicy_monitor.vocabulary import TOKEN_SIGNS

#: A bucket's name is its lower edge.
MU_BUCKETS: Final = ("0", "1e-4", "1e-3", "1e-2", "1e-1", "5e-1", "9e-1", "99e-2")
LAGS: Final = 9
LAG_BUCKETS: Final = ("negative", *map(str, range(LAGS)), f"{LAGS}+")
TURNS: Final = 16
TURN_BUCKETS: Final = (*map(str, range(TURNS)), f"{TURNS}+")
SIGN_BUCKETS: Final = TOKEN_SIGNS
#: Powers of two, of positions and of lengths.
POWER_BUCKETS: Final = tuple(str(1 << power) for power in range(63))

#: The dimensions whose buckets are the same for every shard.
BUCKETS: Final[Mapping[str, tuple[str, ...]]] = {
    "position": ("first", *POWER_BUCKETS, "last"),
    "length": POWER_BUCKETS,
    "mu_probability": MU_BUCKETS,
    "lag": LAG_BUCKETS,
    "turn": TURN_BUCKETS,
    "advantage_sign": SIGN_BUCKETS,
}

#: The array that a dimension needs beside log-probs.
NEEDS: Final[Mapping[str, str]] = {
    "mu_probability": "sampling_logprobs",
    "lag": "policy_versions, policy_version",
    "turn": "turns",
    "advantage_sign": "advantages",
}


def constant_buckets(shard: int | None, labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The dimensions in which a whole shard is one bucket; names and values of labels are percent-encoded."""
    if shard is not None:
        yield "shard", str(shard)
    for name, value in labels.items():
        yield f"label:{quote(name, safe='')}", quote(value, safe="")
