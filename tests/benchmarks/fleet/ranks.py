"""The fleet: which runs there are, how many ranks each has, and what each of them posts.

One run of 512 ranks beside 199 of two to eight; raw shards of three sizes, and summaries that ranks reduced themselves.
The ranks of one kind post the same arrays, each under a key of its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from numpy.typing import NDArray
from offpolicy_monitor.client.reduce import reduced
from offpolicy_monitor.wire.frame import MEDIA_TYPE, encode

from tests.benchmarks.batches import Synthetic
from tests.benchmarks.body import Body


@dataclass(frozen=True)
class Kind:
    """`runs` of so many `ranks`, each of which posts so many `tokens` a step."""

    name: str
    runs: int
    ranks: int
    tokens: int
    reduces: bool = False


@dataclass(frozen=True)
class Rank:
    """One shard of each step of a run."""

    kind: Kind
    run: str
    shard: int

    @property
    def path(self) -> str:
        return f"/v1/runs/{self.run}/batches?detail=none"

    def body(self, step: int) -> Body:
        """What it posts."""
        envelope = {"step": step, "shard": self.shard, "shards": self.kind.ranks, "minibatches": 1}
        return Body(encode(envelope, shard_arrays(self.kind, self.shard)), MEDIA_TYPE)


FLEET: Final = (
    Kind("512 ranks, reduced", 1, 512, 16_384, reduces=True),
    Kind("2 ranks of 2,000 tokens", 100, 2, 2_000),
    Kind("4 ranks of 16,384 tokens", 60, 4, 16_384),
    Kind("8 ranks of 131,072 tokens", 9, 8, 131_072),
    Kind("4 ranks of 131,072 tokens, reduced", 30, 4, 131_072, reduces=True),
)


def ranks() -> Iterator[Rank]:
    """All of them."""
    for kind in FLEET:
        for run in range(kind.runs):
            name = f"{kind.name.partition(',')[0].replace(' ', '-')}-{'r' if kind.reduces else 'w'}-{run}"
            yield from (Rank(kind, name, shard) for shard in range(kind.ranks))


@cache
def shard_arrays(kind: Kind, shard: int) -> Mapping[str, NDArray]:
    """Of a shard of each run of a kind; a summary says which shard it is of."""
    return reduced({"step": 0, "shard": shard}, raw(kind)) if kind.reduces else raw(kind)


@cache
def raw(kind: Kind) -> Mapping[str, NDArray]:
    """Of all shards of a kind, before they are reduced."""
    source = Synthetic(kind.tokens)
    arrays: dict[str, NDArray] = {**source.columns, "lengths": source.lengths, "advantages": source.advantages}
    return arrays if kind.reduces else {**arrays, "mask": source.mask}
