"""The policy: a small decoder-only transformer, and the trainer's way to its log-probs by one forward over whole rows.

B rows, L = P + A columns (prompt, answer), V tokens. Everything is computed row by row in a fixed shape: a row's
figures depend neither on its neighbours nor on later columns, bit for bit. It knows nothing of sampling or rewards.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """Sizes of a policy: `prompt` and `answer` columns, `vocabulary` tokens, and the transformer's own."""

    vocabulary: int
    prompt: int
    answer: int
    width: int
    layers: int
    heads: int


class Block(nn.Module):
    """Pre-norm transformer block: causal self-attention, then a GELU perceptron, each added to its input."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm1, self.norm2 = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)
        self.up = nn.Linear(shape.width, 4 * shape.width)
        self.down = nn.Linear(4 * shape.width, shape.width)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        """Add attention and perceptron: x [B, L, width]; hidden [B, 1, L, L] bool: keys that a query must not see."""
        x = x + self.attend(self.norm1(x), hidden)
        added: Tensor = self.down(F.gelu(self.up(self.norm2(x))))
        return x + added

    def attend(self, x: Tensor, hidden: Tensor) -> Tensor:
        """Masked softmax attention by plain products, which has one kernel with and without gradients."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(hidden, -torch.inf)
        out: Tensor = self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return out


class Policy(nn.Module):
    """Maps tokens to next-token logits. Initialised from `generator`: a seed fixes it, and no global state is used."""

    def __init__(self, shape: Shape, generator: torch.Generator) -> None:
        super().__init__()
        self.shape = shape
        with torch.random.fork_rng(devices=[]):  # the layers' own initialisation draws from the global generator
            self.build(shape)
        self.initialise(generator)

    def build(self, shape: Shape) -> None:
        """Make the layers."""
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.prompt + shape.answer, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw matrices with a variance of 1 / width, a quarter of it for token embeddings; biases are 0."""
        for name, weight in self.named_parameters():
            scale = 0.5 if name.endswith("tokens.weight") else 1.0
            if weight.ndim == 2:
                nn.init.normal_(weight, std=scale / math.sqrt(self.shape.width), generator=generator)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, tokens: Tensor, starts: Tensor, unseen: Tensor | None = None) -> Tensor:
        """Map tokens [B, L] int64 and starts [B] int64 (first column that is no padding) to logits [B, L, V].

        `unseen` [B, L] bool: columns that no other one looks at.
        """
        column = torch.arange(tokens.shape[1])
        x = self.tokens(tokens) + self.positions((column - starts[:, None]).clamp(min=0))
        hidden = (column > column[:, None]) | (column < starts[:, None, None])
        hidden = hidden if unseen is None else hidden | unseen[:, None]
        hidden = (hidden & (column != column[:, None]))[:, None]
        for block in self.blocks:
            x = block(x, hidden)
        logits: Tensor = self.head(self.norm(x))
        return logits


def answer_distribution(policy: Policy, tokens: Tensor, starts: Tensor) -> Tensor:
    """Log-probs [B, A, V] float32 (nats) of every token at every answer column, each given the columns before it."""
    logits: Tensor = policy(tokens, starts)
    return logits[:, policy.shape.prompt - 1 : -1].log_softmax(-1)


def answer_log_probs(
    policy: Policy, tokens: Tensor, starts: Tensor, early: int = 0, unseen: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Log-prob of each answer token and entropy of its distribution: two [B, A] float32, nats.

    With `early` it is of the A tokens that begin so many columns before the answer, and with `unseen` [B, L] bool the
    others do not look at some columns: mistakes, on purpose.
    """
    prompt, columns = policy.shape.prompt - early, tokens.shape[1] - early
    distribution = policy(tokens, starts, unseen)[:, prompt - 1 : columns - 1].log_softmax(-1)
    chosen = distribution.gather(-1, tokens[:, prompt:columns, None]).squeeze(-1)
    return chosen, -(distribution.exp() * distribution).sum(-1)
