"""The names of breakdown buckets, by dimension: what a table `breakdown/<dimension>/<bucket>/...` may be called.

Shared by the maker of breakdowns and by the checks of summaries that come from elsewhere. Knows no tokens.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from urllib.parse import quote

from offpolicy_monitor.summary.rows import NAMED, POLICY_VERSION, Names
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


class Dimension(NamedTuple):
    """A dimension whose buckets are the same for every shard.

    since   the stored version that first had it: a merge with an older shard lacks it
    needs   what must have been sent beside the log-probs of the gap
    """

    buckets: tuple[str, ...]
    since: int
    needs: Names = ()


DIMENSIONS: Final[Mapping[str, Dimension]] = {
    "position": Dimension(("first", *POWER_BUCKETS, "last"), NAMED),
    "length": Dimension(POWER_BUCKETS, NAMED),
    "mu_probability": Dimension(MU_BUCKETS, NAMED, ("sampling_logprobs",)),
    "lag": Dimension(LAG_BUCKETS, NAMED, ("policy_versions", POLICY_VERSION)),
    "turn": Dimension(TURN_BUCKETS, NAMED, ("turns",)),
    "advantage_sign": Dimension(SIGN_BUCKETS, NAMED, ("advantages",)),
}
BUCKETS: Final[Mapping[str, tuple[str, ...]]] = {name: dimension.buckets for name, dimension in DIMENSIONS.items()}


def constant_buckets(shard: int | None, labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The dimensions in which a whole shard is one bucket; names and values of labels are percent-encoded."""
    if shard is not None:
        yield "shard", str(shard)
    for name, value in labels.items():
        yield f"label:{quote(name, safe='')}", quote(value, safe="")
