"""Samplers: what writes the answers, and the log-probs it claims for the tokens it wrote (log mu).

EngineSampler stands for an inference engine: another precision and another code path than the trainer's. ExactSampler
is the trainer's own forward in the trainer's precision, whose log-probs the recompute must meet bit for bit.
What is claimed is what was sampled from: temperature 1 and no truncation, unless a fault is planted. It knows nothing
of rewards.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from offpolicy_monitor.demo.decoder import Decoder
from offpolicy_monitor.demo.faults import Fault
from offpolicy_monitor.demo.planted import Reshape, draw_of, first_seen, reshape_of, with_bits
from offpolicy_monitor.demo.policy import Policy, answer_distribution
from offpolicy_monitor.demo.task import END, PAD, Prompts
from offpolicy_monitor.demo.weights import FORMATS, Format, Merging, integer_format


@dataclass(frozen=True)
class Samples:
    """Answers of one block; mask is 1 where the sampler wrote.

    tokens [B, A] int64, PAD after END; log_probs [B, A] float32 (nats), 0 outside the mask; mask [B, A] bool;
    replica: which engine wrote, None where there is one; rescored [B, A] float32 (nats): log-probs of the same tokens
    by the engine's prefill, None where nobody asked for them or it has none.
    """

    tokens: Tensor
    log_probs: Tensor
    mask: Tensor
    replica: int | None = None
    rescored: Tensor | None = None


class Sampler(Protocol):
    """Anything that writes answers by the weights of its last sync."""

    def sync(self, policy: Policy) -> None:
        """Take a copy of the policy's weights as they are now."""

    def generate(self, prompts: Prompts, generator: torch.Generator) -> Samples:
        """Write one answer to each prompt."""


class Rescores(Sampler, Protocol):
    """A sampler that can say what it gives tokens where it reads them at once."""

    def rescore(self, prompts: Prompts, samples: Samples) -> Tensor | None:
        """Log-probs [B, A] (nats) of these answers, by prefill; None where it has none that are like the sampled."""


class Rescoring:
    """A sampler that has its engine read what it wrote once more."""

    def __init__(self, engine: Rescores) -> None:
        self.engine = engine

    def sync(self, policy: Policy) -> None:
        """Hand the weights on."""
        self.engine.sync(policy)

    def generate(self, prompts: Prompts, generator: torch.Generator) -> Samples:
        """Write one answer to each prompt, and read it once more."""
        samples = self.engine.generate(prompts, generator)
        return replace(samples, rescored=self.engine.rescore(prompts, samples))


class EngineSampler:
    """Decodes token by token with a key-value cache, over weights in `form`.

    `fault` is what is planted: in what is reported, in what is drawn from it, or in what a sync takes.
    """

    def __init__(self, policy: Policy, form: Format, fault: Fault | None) -> None:
        self.form, self.fault, self.reshape, self.draw = form, fault, reshape_of(fault), draw_of(fault)
        self.columns, self.most, self.decoder = policy.shape.answer, longest(policy, fault), Decoder(policy, form)
        self.head = self.decoder.head if fault is not None and fault.name == "partial_sync" else None

    def sync(self, policy: Policy) -> None:
        """Convert the policy's weights as they are now, but for a head that is kept."""
        self.decoder = Decoder(policy, self.form)
        if self.head is not None:
            self.decoder.head = self.head

    def generate(self, prompts: Prompts, generator: torch.Generator) -> Samples:
        """Write one answer to each prompt; every row sees each column once."""
        first = self.reshape(self.decoder.prefill(prompts.tokens, first_seen(self.fault, prompts.starts)))

        def extend(tokens: Tensor, column: int) -> Tensor:
            return self.reshape(self.decoder.feed(tokens[:, None]))

        return write_answers(first, extend, self.columns, generator, self.draw, self.most)

    def rescore(self, prompts: Prompts, samples: Samples) -> Tensor:
        """The answers' log-probs by one pass over whole rows, with what the fault does to log-probs."""
        row = torch.cat([prompts.tokens, samples.tokens], 1)
        given = self.decoder.rescore(row, first_seen(self.fault, prompts.starts))
        return chosen(self.reshape, given[:, prompts.tokens.shape[1] - 1 : -1], samples)


class ExactSampler:
    """Runs the trainer's forward over the whole row, in the shape the recompute will have, for every token."""

    def __init__(self, policy: Policy, fault: Fault | None) -> None:
        self.fault, self.reshape, self.draw = fault, reshape_of(fault), draw_of(fault)
        self.most = longest(policy, fault)
        self.sync(policy)

    def sync(self, policy: Policy) -> None:
        """Copy the policy's weights as they are now."""
        self.policy = copy.deepcopy(policy)

    def generate(self, prompts: Prompts, generator: torch.Generator) -> Samples:
        """Write one answer to each prompt; log-probs equal the trainer's recompute on the same block bitwise."""
        columns, prompt = self.policy.shape.answer, self.policy.shape.prompt
        row, starts = F.pad(prompts.tokens, (0, columns), value=PAD), first_seen(self.fault, prompts.starts)

        def extend(tokens: Tensor, column: int) -> Tensor:
            row[:, prompt + column - 1] = tokens
            return self.reshape(answer_distribution(self.policy, row, starts)[:, column])

        first = self.reshape(answer_distribution(self.policy, row, starts)[:, 0])
        return write_answers(first, extend, columns, generator, self.draw, self.most)

    def rescore(self, prompts: Prompts, samples: Samples) -> Tensor:
        """What was reported: it decodes by reading whole rows."""
        row = torch.cat([prompts.tokens, samples.tokens], 1)
        given = answer_distribution(self.policy, row, first_seen(self.fault, prompts.starts))
        return chosen(self.reshape, given, samples)


def chosen(reshape: Reshape, given: Tensor, samples: Samples) -> Tensor:
    """Of log-probs [B, A, V] those of the sampled tokens, [B, A], as an engine with this fault reports them."""
    reported = torch.stack([reshape(column) for column in given.unbind(1)], 1)
    return reported.gather(-1, samples.tokens[..., None])[..., 0].where(samples.mask, 0.0)


def longest(policy: Policy, fault: Fault | None) -> int:
    """Tokens after which an answer is ended."""
    columns = policy.shape.answer
    return min(columns, int(fault.strength)) if fault is not None and fault.name == "cut" else columns


def write_answers(
    first: Tensor,
    extend: Callable[[Tensor, int], Tensor],
    columns: int,
    generator: torch.Generator,
    draw: Reshape,
    most: int,
) -> Samples:
    """Draw tokens, from what `draw` makes of the reported log-probs, until every row has ended or has `most` of them.

    first [B, V] float32 log-probs at answer column 0; extend(tokens [B] of column c - 1, c) gives them at column c.
    """
    rows = len(first)
    tokens = torch.full((rows, columns), PAD)
    log_probs, mask = torch.zeros(rows, columns), torch.zeros(rows, columns, dtype=torch.bool)
    running, distribution = torch.ones(rows, dtype=torch.bool), first
    for column in range(columns):
        drawn = torch.multinomial(draw(distribution).exp(), 1, generator=generator)
        tokens[:, column] = torch.where(running, drawn[:, 0], PAD)
        log_probs[:, column] = distribution.gather(1, drawn)[:, 0].where(running, 0.0)
        mask[:, column] = running
        running = running & (drawn[:, 0] != END)
        if column + 1 == most or not running.any():
            break
        distribution = extend(tokens[:, column], column + 1)
    return Samples(tokens, log_probs, mask)


def make_sampler(name: str, policy: Policy, fault: Fault | None = None) -> Rescores:
    """The sampler of that name, `exact` or an engine in one of the FORMATS, with the part of a fault that is its own.

    Some faults bring a format of their own; those of replicas.TAKES_TURNS need two samplers.
    """
    if fault is not None and fault.name in OWN_FORMATS:
        return EngineSampler(policy, OWN_FORMATS[fault.name](int(fault.strength)), fault)
    return ExactSampler(policy, fault) if name == "exact" else EngineSampler(policy, FORMATS[name], fault)


#: Faults that bring a format of their own, by their strength.
OWN_FORMATS: Final[Mapping[str, Callable[[int], Format]]] = {
    "int8": integer_format,
    "nf4_merge": lambda block: Format(torch.float32, Merging(block)),
    "kv_cache": lambda bits: replace(FORMATS["bfloat16"], cached=lambda x: with_bits(x.float(), bits).to(x.dtype)),
}
