"""Anagrams: write each letter of the prompt exactly once, in any order, then stop. Anyone can check an answer.

A prompt of n letters has up to n! right answers, so a policy can be right and keep its entropy, as a healthy run does.
It knows tokens and rewards, and nothing of policies or training.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

PAD, ASK, END = 0, 1, 2
FIRST_LETTER = 3
SHORTEST = 3


@dataclass(frozen=True)
class Prompts:
    """Prompts of one block, padded on the left so that every answer begins in the same column.

    tokens [B, P] int64, the last one ASK; starts [B] int64: the column of the first token that is not padding;
    begun: tokens that stand before the letters, 1 where prompts have a first token of their own (BOS).
    """

    tokens: Tensor
    starts: Tensor
    begun: int = 0

    def letters(self) -> list[list[int]]:
        """The letters asked for, one list per prompt."""
        rows = zip(self.tokens.tolist(), self.starts.tolist(), strict=True)
        return [row[start + self.begun : -1] for row, start in rows]


def vocabulary(letters: int, begun: int = 0) -> int:
    """Tokens there are: the three special ones, the letters, and BOS where prompts begin with it."""
    return FIRST_LETTER + letters + begun


def with_beginning(prompts: Prompts, begin: int) -> Prompts:
    """The same prompts in one more column, each with the token `begin` before its letters."""
    tokens = F.pad(prompts.tokens, (1, 0), value=PAD)
    tokens[torch.arange(len(tokens)), prompts.starts] = begin
    return Prompts(tokens, prompts.starts, 1)


def draw_prompts(
    count: int,
    samples: int,
    level: int,
    letters: int,
    width: int,
    generator: torch.Generator,
    shortest: int = SHORTEST,
) -> Prompts:
    """Draw `count` prompts of `shortest` to `level` different letters; each stands `samples` times in a row."""
    lengths = torch.randint(shortest, level + 1, (count,), generator=generator)
    drawn = torch.rand(count, letters, generator=generator).argsort(1)[:, : width - 1] + FIRST_LETTER
    starts = width - 1 - lengths
    tokens = F.pad(torch.where(torch.arange(width - 1) < starts[:, None], PAD, drawn), (0, 1), value=ASK)
    return Prompts(tokens.repeat_interleave(samples, 0), starts.repeat_interleave(samples, 0))


def reward(prompt: Sequence[int], answer: Sequence[int]) -> float:
    """Share of the answer that is right, in [0, 1]: letters of the prompt found, over the longer of the two.

    prompt: its letters; answer: the tokens written, END included if it was. Without END an answer earns half.
    """
    ended = bool(answer) and answer[-1] == END
    written = answer[:-1] if ended else answer
    found = (Counter(prompt) & Counter(written)).total()
    return found / max(len(prompt), len(written), 1) * (1.0 if ended else 0.5)
