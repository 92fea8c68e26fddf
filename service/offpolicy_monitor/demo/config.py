"""DemoConfig: everything the demo trainer can be told, with the defaults that learn in a few minutes on one core.

Values only. It knows neither torch nor the command line; cli.py turns flags into this and train.py reads it.
"""

from dataclasses import dataclass

from offpolicy_monitor.addresses import LOCAL
from offpolicy_monitor.demo.engines.kinds import EngineName, Precision
from offpolicy_monitor.demo.faults import Fault


@dataclass(frozen=True)
class DemoConfig:
    """Settings of one demo run. Endless where neither `steps` nor `seconds` is given.

    prompts, samples   prompts in a minibatch, and answers to each of them (the group that GRPO compares)
    minibatches        gradient steps on one rollout; staleness grows from the first to the last
    engine             a real engine that samples (engines.kinds.ENGINES); None is the demo's own
    lag                training steps between sampling a rollout and training on it; 0 trains on it at once
    fault, fault_from  a known bug to plant, how strongly, and the training step from which on
    scenario, onset    what goes wrong (scenarios.SCENARIOS), and the training step from which on
    rescored           whether the engine's prefill reads what was sampled once more (`engine_logprobs`)
    synced             whether the engine takes new weights
    learning_rate      peak; it halves every `half_life` training steps down to `learning_rate_floor`
    entropy_floor      nats per token; below it the loss pays `entropy_weight` for each missing nat
    shortest           letters of the shortest prompt
    first_level, top_level   longest prompt in letters at the start and after the last rise
    """

    url: str = LOCAL
    run: str = "demo"
    attempt: int | None = None
    sampler: Precision = "bfloat16"
    engine: EngineName | None = None
    steps: int | None = None
    seconds: float | None = None
    seed: int = 0
    lag: int = 0
    fault: Fault | None = None
    fault_from: int = 0
    scenario: str = "healthy"
    onset: int = 30
    synced: bool = True
    rescored: bool = False

    prompts: int = 12
    samples: int = 8
    minibatches: int = 4
    learning_rate: float = 6e-4
    learning_rate_floor: float = 1.5e-4
    half_life: int = 250
    warm_up: int = 10
    gradient_norm: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.28
    entropy_floor: float = 0.35
    entropy_weight: float = 0.6

    letters: int = 10
    shortest: int = 3
    first_level: int = 5
    top_level: int = 8
    slack: int = 4
    width: int = 64
    layers: int = 2
    heads: int = 4

    @property
    def begun(self) -> int:
        """Tokens of a prompt before its letters: BOS, where a real engine samples."""
        return 0 if self.engine is None else 1

    @property
    def prompt_width(self) -> int:
        """Columns of a prompt: its beginning, the longest one and the token after it that asks for the answer."""
        return self.begun + self.top_level + 1

    @property
    def answer_width(self) -> int:
        """Columns of an answer: the longest right one, its end token, and room to be wrong."""
        return self.top_level + 1 + self.slack

    @property
    def profile(self) -> str:
        """The service's profile of this run: what mismatch to expect."""
        if self.engine is not None:
            return "fp8" if self.sampler == "int8" else "dense_bf16"
        return "bitwise" if self.sampler == "exact" else "dense_bf16"
