"""Faults where they act: in the distribution that the engine samples from, and in the trainer's recompute.

Nothing is added to numbers afterwards: answers are drawn from what is reported, as in an engine with that bug. Shapes:
B answers, V tokens; log-probs in nats. It knows neither engines nor messages.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from offpolicy_monitor.demo.faults import Fault
from offpolicy_monitor.demo.policy import Policy, answer_log_probs
from offpolicy_monitor.demo.task import PAD

Reshape = Callable[[Tensor], Tensor]


def reshape_of(fault: Fault | None) -> Reshape:
    """What an engine with this fault does to log-probs [B, V] before it samples from them and reports them."""
    reshapes = {"temperature": at_temperature, "top_p": within_nucleus, "quantised": with_bits}
    if fault is not None and fault.name == "noise":
        return partial(with_noise, strength=fault.strength, generator=torch.Generator().manual_seed(0))
    if fault is None or fault.name not in reshapes:
        return lambda log_probs: log_probs
    return partial(reshapes[fault.name], strength=fault.strength)


def draw_of(fault: Fault | None) -> Reshape:
    """What an engine with this fault samples from, by what it reports: log-probs [B, V] of both."""
    if fault is not None and fault.name == "sampled_padding":
        return partial(with_padding, strength=fault.strength)
    if fault is None or fault.name != "sampling":
        return lambda log_probs: log_probs
    return partial(at_temperature, strength=fault.strength)


def first_seen(fault: Fault | None, starts: Tensor) -> Tensor:
    """The first column [B] of each prompt that the engine sees, by the first there is."""
    return starts + int(fault.strength) if fault is not None and fault.name == "prompt" else starts


def at_temperature(log_probs: Tensor, strength: float) -> Tensor:
    """log softmax(logits / T); log-probs are logits but for a constant."""
    return (log_probs / strength).log_softmax(-1)


def with_padding(log_probs: Tensor, strength: float) -> Tensor:
    """Draws that are the padding token with about this probability, whatever is reported of it."""
    drawn = log_probs.clone()
    drawn[:, PAD] = math.log(strength)
    return drawn.log_softmax(-1)


def within_nucleus(log_probs: Tensor, strength: float) -> Tensor:
    """Keep the fewest tokens whose mass reaches p, renormalised; -inf elsewhere."""
    ordered, order = log_probs.sort(-1, descending=True)
    mass = ordered.exp()
    kept = torch.zeros_like(log_probs, dtype=torch.bool).scatter(-1, order, mass.cumsum(-1) - mass < strength)
    return log_probs.masked_fill(~kept, -torch.inf).log_softmax(-1)


def with_bits(log_probs: Tensor, strength: float) -> Tensor:
    """Round to `strength` significant bits, the leading one included: 8 for bfloat16, 11 for float16."""
    mantissa, exponent = torch.frexp(log_probs)
    scale = 2.0 ** int(strength)
    return torch.ldexp((mantissa * scale).round() / scale, exponent)


def with_noise(log_probs: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    """log softmax(logits + N(0, strength^2)): another kernel, or a coarser number format."""
    return (log_probs + strength * torch.randn(log_probs.shape, generator=generator)).log_softmax(-1)


def reported(fault: Fault | None, log_probs: Tensor, generator: torch.Generator) -> Tensor:
    """Log-probs [B, A] as the engine sends them: with NaN, few decimals, late, or of other answers, as the fault is."""
    if fault is not None and fault.name == "nan":
        broken = torch.rand(log_probs.shape, generator=generator) < fault.strength
        return log_probs.masked_fill(broken, torch.nan)
    if fault is not None and fault.name == "decimal":
        return log_probs.round(decimals=int(fault.strength))
    if fault is not None and fault.name == "shifted":
        late = torch.rand(len(log_probs), generator=generator) < fault.strength
        return torch.where(late[:, None], F.pad(log_probs[:, :-1], (1, 0)), log_probs)
    if fault is not None and fault.name == "garbled":
        others = torch.rand(len(log_probs), generator=generator) < fault.strength
        return torch.where(others[:, None], log_probs.roll(1, 0), log_probs)
    return log_probs


def recompute(fault: Fault | None, policy: Policy, tokens: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """The trainer's log-probs and entropies of the answers, [B, A] each, as policy.answer_log_probs.

    `sampled_padding` takes that token in an answer for padding, which nothing attends to; `off_by_one` cuts the first
    answers of the block, its share of them, out of the row one column early.
    """
    unseen = None
    if fault is not None and fault.name == "sampled_padding":
        unseen = (tokens == PAD) & (torch.arange(tokens.shape[1]) >= policy.shape.prompt)
    log_probs, entropy = answer_log_probs(policy, tokens, starts, unseen=unseen)
    if fault is None or fault.name != "off_by_one":
        return log_probs, entropy
    early, _ = answer_log_probs(policy, tokens, starts, early=1)
    hit = torch.arange(len(tokens)) < round(fault.strength * len(tokens))
    return torch.where(hit[:, None], early, log_probs), entropy
