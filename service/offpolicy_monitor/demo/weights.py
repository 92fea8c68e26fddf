"""Weights as an inference engine holds them: bfloat16 throughout, or int8 with one scale an output channel.

A converted layer is a function from activations to activations; what its numbers look like inside stays here.
Converting copies: the trainer's later steps do not reach the engine until the next sync.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn


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


@dataclass(frozen=True)
class Format:
    """One precision of an engine: the dtype of activations, embeddings and norms, and how a layer converts."""

    dtype: torch.dtype
    linear: Callable[[nn.Linear], Linear]


def dense_bfloat16(layer: nn.Linear) -> Linear:
    """Round weight and bias to bfloat16."""
    return DenseLinear(layer.weight.detach().bfloat16(), layer.bias.detach().bfloat16())


def quantise(layer: nn.Linear, bits: int) -> Linear:
    """Round weights to `bits` <= 8, symmetric: the largest of each output channel is 2^(bits-1) - 1 of its scale."""
    weight = layer.weight.detach()
    scale = weight.abs().amax(1).clamp(min=torch.finfo(weight.dtype).tiny) / (2 ** (bits - 1) - 1)
    return Int8Linear((weight / scale[:, None]).round().to(torch.int8), scale, layer.bias.detach().clone())


def integer_format(bits: int) -> Format:
    """Weights of so many bits, kept in int8; activations in float32."""
    return Format(torch.float32, partial(quantise, bits=bits))


FORMATS = {
    "bfloat16": Format(torch.bfloat16, dense_bfloat16),
    "int8": integer_format(8),
}
