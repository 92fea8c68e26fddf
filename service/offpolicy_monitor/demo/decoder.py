"""The engine's forward: one token per call against cached keys and values, written apart from the trainer's forward.

It computes the same function as Policy by another path and, by its Format, in another precision: the two reasons for
which sampling log-probs differ from the trainer's in practice. It knows neither what tokens mean nor
how they are drawn.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from offpolicy_monitor.demo.policy import Block, Policy
from offpolicy_monitor.demo.weights import Format


@dataclass(frozen=True)
class Norm:
    """Layer normalisation with converted weights."""

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias)


class Layer:
    """One transformer layer with its cache of keys and values [B, heads, columns so far, width / heads]."""

    def __init__(self, block: Block, form: Format) -> None:
        self.heads, self.cached = block.heads, form.cached
        self.norm1, self.norm2 = _norm(block.norm1, form), _norm(block.norm2, form)
        self.qkv, self.out = form.linear(block.qkv), form.linear(block.out)
        self.up, self.down = form.linear(block.up), form.linear(block.down)
        self.keys = self.values = torch.empty(0)

    def reset(self) -> None:
        """Forget the cached columns."""
        self.keys = self.values = torch.empty(0)

    def __call__(self, x: Tensor, visible: Tensor, alone: bool = False) -> Tensor:
        """Add attention and perceptron: x [B, n, width] of the n newest columns; visible [B, 1, n, columns] bool.

        `alone`: these are all the columns there are, and nothing is read from the cache or written to it.
        """
        x = x + self.attend(self.norm1(x), visible, alone)
        return x + self.down(F.gelu(self.up(self.norm2(x))))

    def attend(self, x: Tensor, visible: Tensor, alone: bool) -> Tensor:
        """Attend from the newest columns to all; keys and values come from the cache unless these are `alone`."""
        rows, new, width = x.shape
        q, k, v = (part.view(rows, new, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        keys, values = (k, v) if alone else self.remembered(k, v)
        scores = torch.matmul(q * (1 / math.sqrt(width // self.heads)), keys.mT)
        weights = torch.where(visible, scores.float(), -torch.inf).softmax(-1).to(x.dtype)
        return self.out(torch.matmul(weights, values).transpose(1, 2).reshape(rows, new, width))

    def remembered(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values so far, as they are cached, these among them."""
        k, v = self.cached(k), self.cached(v)
        self.keys = torch.cat([self.keys, k], 2) if self.keys.numel() else k
        self.values = torch.cat([self.values, v], 2) if self.values.numel() else v
        return self.keys, self.values


class Decoder:
    """A policy's weights in an engine's precision, and the state of one block of rows being decoded."""

    def __init__(self, policy: Policy, form: Format) -> None:
        self.tokens, self.positions = (
            table.weight.detach().to(form.dtype, copy=True) for table in (policy.tokens, policy.positions)
        )
        self.layers = [Layer(block, form) for block in policy.blocks if isinstance(block, Block)]
        self.norm, self.head = _norm(policy.norm, form), form.linear(policy.head)
        self.starts = torch.empty(0, dtype=torch.int64)
        self.columns = 0

    def prefill(self, tokens: Tensor, starts: Tensor) -> Tensor:
        """Begin a block: prompts [B, P] int64 and first columns [B] -> log-probs [B, V] float32 of the next token."""
        self.starts, self.columns = starts, 0
        for layer in self.layers:
            layer.reset()
        return self.feed(tokens)

    def feed(self, tokens: Tensor) -> Tensor:
        """Append the columns [B, n] int64 -> log-probs [B, V] float32 (nats) of the token after them."""
        first, self.columns = self.columns, self.columns + tokens.shape[1]
        return self._read(tokens, self.starts, first)[:, -1]

    def rescore(self, tokens: Tensor, starts: Tensor) -> Tensor:
        """Whole rows in one pass, as a prefill reads them: [B, L] int64 -> log-probs [B, L, V] float32 (nats) of the
        token after each; no cache is read, and the block that is being decoded goes on as if nothing had been asked.
        """
        return self._read(tokens, starts, 0, alone=True)

    def _read(self, tokens: Tensor, starts: Tensor, first: int, alone: bool = False) -> Tensor:
        """The columns from `first` on -> log-probs of the token after each."""
        query, key = torch.arange(first, first + tokens.shape[1]), torch.arange(first + tokens.shape[1])
        position = torch.maximum(query - starts[:, None], torch.zeros(1, dtype=torch.int64))
        visible = (key <= query[:, None]) & ((key >= starts[:, None, None]) | (key == query[:, None]))
        x = F.embedding(tokens, self.tokens) + F.embedding(position, self.positions)
        for layer in self.layers:
            x = layer(x, visible[:, None], alone)
        if not alone:  # the token after the newest column is all that decoding asks for
            x = x[:, -1:]
        return torch.log_softmax(self.head(self.norm(x)).float(), -1)


def _norm(layer: nn.LayerNorm, form: Format) -> Norm:
    return Norm(layer.weight.detach().to(form.dtype, copy=True), layer.bias.detach().to(form.dtype, copy=True))
