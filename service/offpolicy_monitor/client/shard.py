"""Shard: one `log` call on its way to the service, in memory of its own.

Knows the envelope and how a body is laid out, and how the two halves of a rollout make a whole. Knows no HTTP.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from offpolicy_monitor.client.mistakes import Mistake
from offpolicy_monitor.client.values import Array
from offpolicy_monitor.vocabulary import CURRENT, OLD, SAMPLING
from offpolicy_monitor.wire.frame import encode

Envelope = dict[str, Any]
Buffers = Sequence[bytes | memoryview]
LEAST = {"step": 0, "minibatch": 0, "minibatches": 1, "shard": 0, "shards": 1, "policy_version": None}


@dataclass(frozen=True, eq=False)
class Shard:
    """Envelope (JSON-ready, without `attempt`) and arrays by their names; `wait` returns when they may be read.

    `device` is where the trainer has its log-probs: the arrays here are copies in this machine's memory.
    """

    envelope: Envelope
    arrays: Mapping[str, Array]
    bfloat16: frozenset[str] = frozenset()
    nbytes: int = 0
    wait: Callable[[], None] = field(default=lambda: None)
    device: str = "cpu"

    @property
    def rollout(self) -> tuple[str, int] | None:
        """What its two halves have in common: the rollout's name and the shard; None where no rollout is named."""
        name = self.envelope.get("rollout")
        return None if name is None else (name, self.envelope["shard"])

    @property
    def is_first_half(self) -> bool:
        """Whether the current policy's log-probs are still to come."""
        return self.rollout is not None and CURRENT not in self.arrays

    @property
    def is_later_half(self) -> bool:
        """Whether the service joins it with what it was sent before."""
        return self.rollout is not None and not {SAMPLING, OLD} & self.arrays.keys()

    def body(self, attempt: int) -> Buffers:
        """The body as buffers: a header, and views of the arrays."""
        self.wait()
        return encode({**self.envelope, "attempt": attempt}, self.arrays, self.bfloat16)

    def joined(self, first: "Shard") -> "Shard":
        """The whole shard: this half over the first one, whose labels and sequence ids it keeps where it lacks them."""

        def wait() -> None:
            first.wait()
            self.wait()

        return replace(
            self,
            envelope={
                **{name: first.envelope[name] for name in ("sequence_ids",) if name in first.envelope},
                **self.envelope,
                "labels": {**first.envelope.get("labels", {}), **self.envelope.get("labels", {})},
            },
            arrays={**first.arrays, **self.arrays},
            bfloat16=frozenset(first.bfloat16 - self.arrays.keys()) | self.bfloat16,
            wait=wait,
        )


def make_envelope(
    fields: Mapping[str, object], labels: Mapping[str, object] | None, sequence_ids: Sequence[object] | None
) -> Envelope:
    """The envelope's JSON of what `log` was given; None is left out. Raises Mistake for what is out of range."""
    envelope: Envelope = {}
    for name, value in fields.items():
        if value is not None:
            envelope[name] = str(value) if name == "rollout" else _integer(name, value)
    for name, most in (("shard", "shards"), ("minibatch", "minibatches")):
        if envelope[name] >= envelope.get(most, envelope[name] + 1):
            raise Mistake(name, f"{name} {envelope[name]} must be less than {most} ({envelope[most]})")
    if labels:
        envelope["labels"] = {str(name): str(value) for name, value in labels.items()}
    if sequence_ids is not None:
        envelope["sequence_ids"] = [str(entry) for entry in sequence_ids]
    return envelope


def _integer(name: str, value: Any) -> int:
    """A Python int of anything that is one: numpy's and torch's too."""
    try:
        number = operator.index(value)
    except TypeError as error:
        raise Mistake(name, f"{name} must be an integer, not {type(value).__name__}") from error
    least = LEAST[name]
    if least is not None and number < least:
        raise Mistake(name, f"{name} must be at least {least}, not {number}")
    return number
