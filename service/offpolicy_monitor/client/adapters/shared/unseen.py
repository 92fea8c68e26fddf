"""Unseen: training steps that pass while an adapter sees no forward, which is said once.

A hook that nobody calls posts nothing, and nothing else would say so: a subclass that computes its loss elsewhere, a
name in the configuration that was not changed. Knows no framework.
"""

from typing import Final

from offpolicy_monitor.client.counters import LOGGER

#: Training steps after which it is said.
PATIENCE: Final = 3


class Unseen:
    """Counts steps until the first forward. `hook` is what was to see one; `advice` says what to look at."""

    def __init__(self, hook: str, advice: str) -> None:
        self.hook, self.advice = hook, advice
        self.steps, self.waits = 0, True

    def forward(self) -> None:
        """One was seen."""
        self.waits = False

    def step(self) -> None:
        """A training step has passed."""
        self.steps += 1
        if self.waits and self.steps >= PATIENCE:
            self.waits = False
            LOGGER.warning(
                "%s has seen nothing of %d training steps, so nothing is posted: %s", self.hook, self.steps, self.advice
            )
