"""The ways in which a block's tokens are divided for breakdowns: each dimension names its buckets and places tokens.

A dimension has a place for each token of the block or for each of its sequences; the place after the last bucket
stands for what belongs to none. It knows no sums.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.batch import Array, Origin
from offpolicy_monitor.measure.blocks import Block
from offpolicy_monitor.summary.tables.buckets import (
    LAG_BUCKETS,
    LAGS,
    MU_BUCKETS,
    SIGN_BUCKETS,
    TURN_BUCKETS,
    TURNS,
    constant_buckets,
)

#: Lower edges of the buckets of mu, the sampled token's probability in the engine.
MU_EDGES: Final = (1e-4, 1e-3, 1e-2, 0.1, 0.5, 0.9, 0.99)


@dataclass(frozen=True, eq=False)
class Dimension:
    """`places` of any integer type, len(buckets) for no bucket: [T] of the block if `a_token`, else [S].

    `scattered`: neighbours seldom share a bucket.
    """

    name: str
    buckets: tuple[str, ...]
    places: Tensor
    a_token: bool
    scattered: bool = False

    @property
    def size(self) -> int:
        """Number of places."""
        return len(self.buckets) + 1


def dimensions(block: Block, origin: Origin) -> Iterator[Dimension]:
    """The dimensions whose arrays were sent, for one block."""
    device = block.batch.device
    for name, buckets, places, a_token in _places(block, origin):
        yield Dimension(name, buckets, torch.from_numpy(np.asarray(places, np.int32)).to(device), a_token)
    if "sampling_logprobs" in block.batch.columns:
        places_of_mu = _mu_places(block.batch.columns["sampling_logprobs"][block.token_range])
        yield Dimension("mu_probability", MU_BUCKETS, places_of_mu, True, scattered=True)


def _places(block: Block, origin: Origin) -> Iterator[tuple[str, tuple[str, ...], Array, bool]]:
    lengths = block.lengths.numpy()
    longest = int(lengths.max(initial=1))
    powers = tuple(str(2**power) for power in range(longest.bit_length()))
    yield "position", ("first", *powers, "last"), _positions(lengths, len(powers)), True
    yield "length", powers, np.where(lengths > 0, _floor_log2(lengths), len(powers)), False
    source, tokens, sequences = block.batch.source, block.token_range, slice(block.first, block.last)
    for name in source.columns.keys() & {"policy_versions", "advantages", "turns"}:
        a_token = name in source.a_token
        values = source.columns[name][tokens if a_token else sequences]
        if name == "advantages":
            yield "advantage_sign", SIGN_BUCKETS, np.sign(values).astype(np.int64) + 1, a_token
        elif name == "turns":
            yield "turn", TURN_BUCKETS, np.where(values < 0, TURNS + 1, np.minimum(values, TURNS)), a_token
        elif origin.policy_version is not None:
            lags = np.clip(origin.policy_version - values.astype(np.int64), -1, LAGS) + 1
            yield "lag", LAG_BUCKETS, np.where(values < 0, len(LAG_BUCKETS), lags), a_token
    for name, bucket in constant(origin):
        yield name, (bucket,), np.zeros(len(lengths), np.int64), False


def constant(origin: Origin) -> Iterator[tuple[str, str]]:
    """The dimensions in which a whole batch is one bucket."""
    return constant_buckets(origin.shard, origin.labels)


def _positions(lengths: Array, powers: int) -> Array:
    """[T]: 0 for a sequence's first token, 1 + power for tokens from 2**power on, 1 + powers for its last."""
    ends = np.cumsum(lengths)
    filled = ends[lengths > 0]
    index = np.arange(int(lengths.sum()), dtype=np.int32) - np.repeat((ends - lengths).astype(np.int32), lengths)
    table = np.concatenate([[0], _floor_log2(np.arange(1, int(lengths.max(initial=1)) + 1)) + 1]).astype(np.int32)
    places: Array = table.take(index)
    places[filled - 1] = powers + 1
    places[(ends - lengths)[lengths > 0]] = 0
    return places


def _floor_log2(values: Array) -> Array:
    """Exact floor(log2(x)) of positive integers; -1 for 0."""
    exponents: Array = np.frexp(values.astype(np.float64))[1].astype(np.int64) - 1
    return exponents


def _mu_places(log_mu: Tensor) -> Tensor:
    places = torch.zeros(len(log_mu), dtype=torch.int8, device=log_mu.device)
    for edge in MU_EDGES:
        places += log_mu >= float(np.log(edge))
    return torch.where(torch.isfinite(log_mu), places, len(MU_BUCKETS))
