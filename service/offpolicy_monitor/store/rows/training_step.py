"""When a training step is over: all of its gradient steps are in, or the time for what it lacks is up.

Rules judge a training step once, when it is over. How many gradient steps it has is declared (`minibatches`), else
learned from the run's recent training steps, else known when a later one begins. Pure: rows come from `training_steps`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from offpolicy_monitor.store.rows.gradient_steps import GradientStep

#: Where the number of gradient steps is only learned, a step that has fewer is over when so many later ones have begun.
LATER_STEPS: Final = 2


@dataclass(frozen=True)
class TrainingStep:
    """A training step under one attempt: its gradient steps that were seen, in order of their minibatches."""

    run: str
    step: int
    attempt: int
    gradient_steps: Sequence[GradientStep]

    @classmethod
    def of(cls, gradient_steps: Sequence[GradientStep]) -> "TrainingStep":
        """The training step that these gradient steps, at least one, are of."""
        ordered = sorted(gradient_steps, key=lambda step: step.minibatch)
        return cls(ordered[0].run, ordered[0].step, ordered[0].attempt, ordered)

    @property
    def counting(self) -> list[GradientStep]:
        """The gradient steps that count."""
        return [step for step in self.gradient_steps if step.counts]

    @property
    def declared(self) -> int | None:
        """How many gradient steps its shards say it has; None where none said so."""
        return max((step.minibatches for step in self.gradient_steps if step.minibatches is not None), default=None)

    @property
    def known(self) -> int:
        """How many gradient steps it has at least: one that was lost leaves a gap among the numbers of the others."""
        return self.gradient_steps[-1].minibatch + 1

    @property
    def can_be_judged(self) -> bool:
        """Whether the figures of what counts are still there: not where an old gradient step has gone into a block."""
        return bool(self.counting) and not any(step.block for step in self.gradient_steps)

    @property
    def since(self) -> float:
        """When the newest gradient step began, unix seconds."""
        return max(step.first_received_at for step in self.gradient_steps)

    def is_over(self, learned: Callable[[], int | None], later: Callable[[], int]) -> bool:
        """Whether to judge it, though its time is not up. While a gradient step lacks shards it is not.

        `learned` answers how many gradient steps the run's training steps had lately, `later` how many later training
        steps have begun: at most LATER_STEPS. Both are asked only where nothing is declared.
        """
        if not all(step.counts for step in self.gradient_steps):
            return False
        declared = self.declared
        if declared is not None:
            return self._has(declared)
        usual = learned()
        return later() > 0 if usual is None else self._has(usual) or later() >= LATER_STEPS

    def _has(self, minibatches: int) -> bool:
        """Whether every gradient step of so many is there."""
        there = {step.minibatch for step in self.gradient_steps}
        return len(there) >= minibatches and there.issuperset(range(minibatches))
