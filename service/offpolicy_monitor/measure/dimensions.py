"""The ways in which a block's tokens are divided for breakdowns: a dimension says in which bucket each token is.

A dimension has an index for each token of the block or for each of its sequences; the index after the last bucket
stands for what belongs to none. It knows no sums.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.batch import Array, Origin
from offpolicy_monitor.core.device import constant, where
from offpolicy_monitor.measure.blocks import Block
from offpolicy_monitor.summary.tables.buckets import BUCKETS, LAG_BUCKETS, LAGS, MU_BUCKETS, TURNS

#: Lower edges of the buckets of mu, the sampled token's probability in the engine.
MU_EDGES: Final = (1e-4, 1e-3, 1e-2, 0.1, 0.5, 0.9, 0.99)


@dataclass(frozen=True, eq=False)
class Dimension:
    """`indices` of any integer type, `buckets` for no bucket: [T] of the block if `per_token`, else [N]."""

    name: str
    indices: Tensor
    per_token: bool

    @property
    def buckets(self) -> int:
        """Number of buckets."""
        return len(BUCKETS[self.name])

    @property
    def size(self) -> int:
        """Number of indices."""
        return self.buckets + 1


def dimensions(block: Block, origin: Origin) -> Iterator[Dimension]:
    """The dimensions whose arrays were sent, for one block."""
    for name, indices, per_token in _indices(block, origin):
        tensor = torch.from_numpy(np.asarray(indices, np.int32)).to(block.batch.device, non_blocking=True)
        yield Dimension(name, tensor, per_token)
    if "sampling_logprobs" in block.batch.names:
        yield Dimension("mu_probability", _mu_indices(block), True)


def _indices(block: Block, origin: Origin) -> Iterator[tuple[str, Array, bool]]:
    lengths = block.lengths
    yield "position", _positions(lengths), True
    yield "length", _floor_log2(lengths), False
    source, tokens = block.batch.source, block.token_range
    for name in ("policy_versions", "advantages", "turns"):
        if name not in source.columns:
            continue
        per_token = name in source.per_token
        values = source.columns[name][tokens if per_token else block.sequences]
        if name == "advantages":
            yield "advantage_sign", np.sign(values).astype(np.int64) + 1, per_token
        elif name == "turns":
            yield "turn", np.where(values < 0, TURNS + 1, np.minimum(values, TURNS)), per_token
        elif origin.policy_version is not None:
            lags = np.clip(origin.policy_version - values.astype(np.int64), -1, LAGS) + 1
            yield "lag", np.where(values < 0, len(LAG_BUCKETS), lags), per_token


def _positions(lengths: Array) -> Array:
    """[T]: 0 for a sequence's first token, 1 + power for tokens from 2**power on, the last bucket for its last."""
    powers = np.arange(int(lengths.max()).bit_length())
    inner = np.clip(lengths[:, None] - 1 - (1 << powers), 0, 1 << powers)
    runs = np.column_stack([np.ones_like(lengths), inner, lengths > 1])
    buckets = np.concatenate([[0], powers + 1, [len(BUCKETS["position"]) - 1]]).astype(np.int32)
    indices: Array = np.repeat(np.tile(buckets, len(lengths)), runs.ravel())
    return indices


def _floor_log2(values: Array) -> Array:
    """Exact floor(log2(x)) of positive integers."""
    exponents: Array = np.frexp(values.astype(np.float64))[1].astype(np.int64) - 1
    return exponents


def _mu_indices(block: Block) -> Tensor:
    """[T] int32: by mu; no bucket where it is not finite."""
    batch, index = block.batch, block.batch.names.index("sampling_logprobs")
    log_mu = batch.columns[index][block.token_range]
    edges = constant([float(np.log(edge)) for edge in MU_EDGES], log_mu.dtype, log_mu.device)
    indices = torch.bucketize(log_mu, edges, out_int32=True, right=True)
    finite = batch.finite_of(index)
    return indices if finite is None else where(finite[block.token_range], indices, len(MU_BUCKETS))
