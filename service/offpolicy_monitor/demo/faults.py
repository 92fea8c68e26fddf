"""Faults that the demo can be told to have, by name: what each is, and what its strength means.

Data rows and their reading from `NAME` or `NAME=STRENGTH`. Where a fault acts is known to planted.py, replicas.py,
unfinished.py and sampler.py; this module needs no torch, so that `--help` stays quick.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class FaultKind:
    """A fault: the strength it has if none is given, the range of strengths, and what it does in a few words."""

    name: str
    usual: float
    least: float
    most: float
    summary: str


KINDS: Final[Mapping[str, FaultKind]] = {
    kind.name: kind
    for kind in (
        FaultKind("temperature", 0.8, 0.1, 10.0, "the engine samples at this temperature, the trainer recomputes at 1"),
        FaultKind("top_p", 0.9, 0.1, 1.0, "the engine samples from this nucleus, renormalised; the trainer does not"),
        FaultKind("off_by_one", 1.0, 0.0, 1.0, "the trainer cuts this share of its answers out one column early"),
        FaultKind("shifted", 1.0, 0.0, 1.0, "the engine's log-probs of this share of its answers come one token late"),
        FaultKind("prompt", 1, 1, 2, "the engine does not see this many of the first tokens of a prompt, such as BOS"),
        FaultKind("stale_weights", 8, 1, 1_000_000, "one of two replicas takes only every n-th weight sync"),
        FaultKind(
            "early_replica",
            8,
            1,
            1_000_000,
            "a second replica samples the first minibatch of each rollout alone, and takes only every n-th weight sync",
        ),
        FaultKind("quantised", 8, 1, 24, "the engine's log-probs have this many bits, 8 as in bfloat16"),
        FaultKind("decimal", 3, 1, 6, "the engine's log-probs have this many decimal places, as in a text"),
        FaultKind("sampling", 0.8, 0.1, 10.0, "the engine samples at this temperature, and reports log-probs of 1"),
        FaultKind("garbled", 0.015, 0.0, 1.0, "the engine reports log-probs of another answer for this share of them"),
        FaultKind("partial_sync", 1, 1, 1, "the engine keeps the lm_head of its first sync"),
        FaultKind("kv_cache", 4, 1, 24, "the engine caches keys and values in this many bits, 4 as in float8 e4m3"),
        FaultKind("sampled_padding", 0.002, 1e-6, 0.5, "this share of the engine's tokens is the trainer's padding"),
        FaultKind("nf4_merge", 64, 2, 4096, "each sync merges what was learned into NF4 weights, blocks of this many"),
        FaultKind("cut", 3, 1, 1000, "the engine ends answers after this many tokens: no mismatch"),
        FaultKind(
            "dropped_stale",
            1,
            0,
            1_000_000,
            "long answers are done training steps later, and the trainer drops those older than this many: no mismatch",
        ),
        FaultKind("noise", 0.1, 0.0, 10.0, "the engine's logits have Gaussian noise of this deviation: no bug either"),
        FaultKind("nan", 0.01, 0.0, 1.0, "the engine reports NaN for this share of its log-probs"),
        FaultKind("int8", 8, 2, 8, "the engine's weights are rounded to this many bits: more noise, and no bug"),
    )
}


@dataclass(frozen=True)
class Fault:
    """A fault to plant, and how strongly."""

    name: str
    strength: float


def parse_fault(text: str) -> Fault:
    """`NAME` or `NAME=STRENGTH`; raises ValueError that says what would be right."""
    name, _, given = text.partition("=")
    if name not in KINDS:
        raise ValueError(f"{name!r} is no fault: {', '.join(KINDS)}")
    kind = KINDS[name]
    try:
        strength = float(given) if given else kind.usual
    except ValueError:
        raise ValueError(f"the strength of {name} must be a number: {given!r}") from None
    if not kind.least <= strength <= kind.most:
        raise ValueError(f"the strength of {name} must be from {kind.least:g} to {kind.most:g}: {given}")
    return Fault(name, strength)


def describe_faults() -> str:
    """All kinds with their usual strengths, for the help."""
    return "; ".join(f"{kind.name}={kind.usual:g}: {kind.summary}" for kind in KINDS.values())
