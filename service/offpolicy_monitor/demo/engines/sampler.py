"""RealSampler: a real engine as a sampler of the demo, with what is planted in its weights, prompts and log-probs.

It knows what an Engine is, and none in particular.
"""

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from offpolicy_monitor.demo.engines.engine import Checkpoint, Engine, Options, Request, Written
from offpolicy_monitor.demo.engines.llama import Llama
from offpolicy_monitor.demo.faults import Fault
from offpolicy_monitor.demo.planted import first_seen, with_bits
from offpolicy_monitor.demo.policy import Policy
from offpolicy_monitor.demo.sampler import Samples, longest
from offpolicy_monitor.demo.task import END, PAD, Prompts
from offpolicy_monitor.demo.weights import Merging, rounded

HEAD: Final = "lm_head.weight"
Convert = Callable[[Checkpoint], Checkpoint]


def options_of(precision: str, seed: int, fault: Fault | None) -> Options:
    """What an engine with this fault is opened with."""
    if fault is not None and fault.name == "kv_cache":
        return Options(precision, cache_bits=int(fault.strength), seed=seed)
    return Options(precision, raw=fault is not None and fault.name == "sampling", seed=seed)


class RealSampler:
    """Samples by an engine that is opened already."""

    def __init__(self, engine: Engine, policy: Llama, fault: Fault | None) -> None:
        self.engine, self.fault, self.columns = engine, fault, policy.shape.answer
        self.convert = conversion(fault, policy.checkpoint())
        self.request = request_of(fault, longest(policy, fault))

    def sync(self, policy: Policy) -> None:
        """Hand the policy's weights as they are now to the engine, but for what is planted in them."""
        assert isinstance(policy, Llama)
        self.engine.load(self.convert(policy.checkpoint()))

    def generate(self, prompts: Prompts, generator: torch.Generator) -> Samples:
        """Write one answer to each prompt; the engine draws by a generator of its own."""
        samples = padded(self.engine.write(self._asked(prompts), self.request), self.columns)
        if self.fault is not None and self.fault.name == "quantised":
            return Samples(samples.tokens, with_bits(samples.log_probs, self.fault.strength), samples.mask)
        return samples

    def rescore(self, prompts: Prompts, samples: Samples) -> Tensor | None:
        """The answers' log-probs by the engine's prefill, which are raw; None where the sampled ones are not."""
        if self.request.temperature != 1 or self.request.top_p != 1:
            return None
        lengths = samples.mask.sum(1).tolist()
        answers = [row[:length] for row, length in zip(samples.tokens.tolist(), lengths, strict=True)]
        found = self.engine.read(self._asked(prompts), answers)
        return padded([Written(*row) for row in zip(answers, found, strict=True)], self.columns).log_probs

    def _asked(self, prompts: Prompts) -> list[list[int]]:
        """The prompts as this engine sees them."""
        starts = first_seen(self.fault, prompts.starts).tolist()
        return [row[start:] for row, start in zip(prompts.tokens.tolist(), starts, strict=True)]


def padded(answers: Sequence[Written], columns: int) -> Samples:
    """Answers of different lengths as arrays."""
    tokens = torch.full((len(answers), columns), PAD)
    log_probs, mask = torch.zeros(len(answers), columns), torch.zeros(len(answers), columns, dtype=torch.bool)
    for row, answer in enumerate(answers):
        length = len(answer.tokens)
        tokens[row, :length] = torch.tensor(answer.tokens)
        log_probs[row, :length] = torch.tensor(answer.log_probs)
        mask[row, :length] = True
    return Samples(tokens, log_probs, mask)


def request_of(fault: Fault | None, most: int) -> Request:
    """How an engine with this fault is asked; `sampling` is a temperature that its raw log-probs do not have."""
    if fault is not None and fault.name in ("temperature", "sampling"):
        return Request(END, most, temperature=fault.strength)
    return Request(END, most, top_p=fault.strength if fault is not None and fault.name == "top_p" else 1.0)


def conversion(fault: Fault | None, first: Checkpoint) -> Convert:
    """What a weight sync of an engine with this fault makes of a checkpoint; `first` is that of its beginning."""
    if fault is not None and fault.name == "partial_sync":
        return lambda checkpoint: {**checkpoint, HEAD: first[HEAD]}
    if fault is not None and fault.name == "int8":
        return of_layers(lambda name, weight: _in_bits(weight, int(fault.strength)))
    if fault is not None and fault.name == "nf4_merge":
        convert = of_layers(Merging(int(fault.strength)).merged)
        convert(first)  # the base is what there is at the beginning
        return convert
    return lambda checkpoint: checkpoint


def of_layers(change: Callable[[str, Tensor], Tensor]) -> Convert:
    """Changes the matrices of the layers between embedding and head, which alone are quantised in practice."""

    def convert(checkpoint: Checkpoint) -> Checkpoint:
        return {name: change(name, w) if ".layers." in name and w.ndim == 2 else w for name, w in checkpoint.items()}

    return convert


def _in_bits(weight: Tensor, bits: int) -> Tensor:
    levels, scale = rounded(weight, bits)
    return levels * scale[:, None]
