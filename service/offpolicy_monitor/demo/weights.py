"""Weights as an inference engine holds them: bfloat16 throughout, or int8 with one scale per output channel.

A converted layer is a function from activations to activations; what its numbers look like inside stays here.
Converting copies: the trainer's later steps do not reach the engine until the next sync.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Quantiles of the normal distribution over their largest, as QLoRA's appendix has them.
NF4 = torch.tensor([
    -1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0.0,
    0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])  # fmt: skip


@dataclass(frozen=True)
class DenseLinear:
    """y = x W^T + b in the dtype of W."""

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


@dataclass(frozen=True)
class Int8Linear:
    """y = (x W8^T) * scale + b: weights [out, in] int8, scale and bias [out] float32, activations float32."""

    weight: Tensor
    scale: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype)) * self.scale + self.bias


Linear = Callable[[Tensor], Tensor]


def as_it_is(x: Tensor) -> Tensor:
    """What is cached is what was computed."""
    return x


@dataclass(frozen=True)
class Format:
    """One precision of an engine: the dtype of activations, embeddings and norms, how a layer converts, and what of
    keys and values is cached."""

    dtype: torch.dtype
    linear: Callable[[nn.Linear], Linear]
    cached: Callable[[Tensor], Tensor] = as_it_is


def dense_bfloat16(layer: nn.Linear) -> Linear:
    """Round weight and bias to bfloat16."""
    return DenseLinear(layer.weight.detach().bfloat16(), layer.bias.detach().bfloat16())


def quantise(layer: nn.Linear, bits: int) -> Linear:
    """Round weights to `bits` <= 8, symmetric: the largest of each output channel is 2^(bits-1) - 1 of its scale."""
    levels, scale = rounded(layer.weight.detach(), bits)
    return Int8Linear(levels.to(torch.int8), scale, layer.bias.detach().clone())


def rounded(weight: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Levels [out, in] and scales [out] of weights that have `bits` bits."""
    scale = weight.abs().amax(1).clamp(min=torch.finfo(weight.dtype).tiny) / (2 ** (bits - 1) - 1)
    return (weight / scale[:, None]).round(), scale


class Merging:
    """Converts weights as a merge of what was learned into NF4 weights does, whose base was in NF4 from the beginning.

    What a layer's first weights are beside their NF4 form belongs to the base and stays. So the first conversion is
    exact, and the further training moves weights, the more of what it added is rounded away.
    """

    def __init__(self, block: int) -> None:
        self.block = block
        self.beside: dict[Hashable, Tensor] = {}

    def __call__(self, layer: nn.Linear) -> Linear:
        """The layer, its weights merged."""
        return DenseLinear(self.merged(layer, layer.weight.detach()), layer.bias.detach().clone())

    def merged(self, key: Hashable, weight: Tensor) -> Tensor:
        """The weights of the layer that goes by `key`, merged."""
        if key not in self.beside:
            self.beside[key] = weight - nf4(weight, self.block)
        beside = self.beside[key]
        return nf4(weight - beside, self.block) + beside


def nf4(weight: Tensor, block: int) -> Tensor:
    """Round to the 16 levels of NF4, times the largest of each block (QLoRA, https://arxiv.org/abs/2305.14314)."""
    flat = weight.reshape(-1)
    blocks = F.pad(flat, (0, -len(flat) % block)).view(-1, block)
    scale = blocks.abs().amax(1, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny)
    nearest = ((blocks / scale)[..., None] - NF4).abs().argmin(-1)
    return (NF4[nearest] * scale).reshape(-1)[: len(flat)].view(weight.shape)


def integer_format(bits: int) -> Format:
    """Weights of so many bits, kept in int8; activations in float32."""
    return Format(torch.float32, partial(quantise, bits=bits))


FORMATS = {
    "bfloat16": Format(torch.bfloat16, dense_bfloat16),
    "int8": integer_format(8),
}
