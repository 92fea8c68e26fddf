"""Engine: what the demo asks of an inference engine, whichever it is.

Values and a protocol; torch's tensors are all it knows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from offpolicy_monitor.demo.policy import Policy

#: A checkpoint by Hugging Face's names of a Llama.
Checkpoint = Mapping[str, Tensor]


@dataclass(frozen=True)
class Options:
    """What an engine is opened with: `bfloat16`, `int8` or `exact` (float32), whether log-probs are reported as they
    were before temperature and nucleus, and how many significant bits cached keys and values have (None: as computed).
    """

    precision: str
    raw: bool = False
    cache_bits: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Request:
    """How to sample: each answer ends after the token `end` or after `most` tokens."""

    end: int
    most: int
    temperature: float = 1.0
    top_p: float = 1.0


@dataclass(frozen=True)
class Written:
    """One answer: its tokens, `end` included where it came, and the log-prob (nats) that the engine reports of each."""

    tokens: Sequence[int]
    log_probs: Sequence[float]


class Engine(Protocol):
    """An engine with the weights of the last `load`."""

    def load(self, checkpoint: Checkpoint) -> None:
        """Take these weights."""

    def write(self, prompts: Sequence[Sequence[int]], request: Request) -> list[Written]:
        """One answer to each prompt, in their order."""

    def read(self, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]) -> list[Sequence[float]]:
        """Raw log-probs (nats) of the answers' tokens, each answer read at once after its prompt."""


#: Opens an engine with a policy's present weights.
Open = Callable[[Policy, Options], Engine]
