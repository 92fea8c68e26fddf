"""Unseen: training steps that pass while an adapter sees no forward, which is said once.

A hook that nobody calls posts nothing, and nothing else would say so: a subclass that computes its loss elsewhere, a
name in the configuration that was not changed. Knows no framework.
"""

from typing import Final

from offpolicy_monitor.client.counters import LOGGER

#: Training steps after which it is said.
PATIENCE: Final = 3


class Unseen:
    """Counts steps until the first forward. `hook` is what was to see one; `advice` says what to look at.

    `lost` is what is not posted without one.
    """

    def __init__(self, hook: str, advice: str, lost: str = "nothing is posted") -> None:
        self.hook, self.advice, self.lost = hook, advice, lost
        self.steps, self.waits = 0, True

    def forward(self) -> None:
        """One was seen."""
        self.waits = False

    def step(self) -> None:
        """A training step has passed."""
        self.steps += 1
        if self.waits and self.steps >= PATIENCE:
            self._say(f"{self.steps} training steps")

    def settle(self) -> None:
        """The run ends: that nothing was seen until then is said, however few steps passed here."""
        if self.waits:
            self._say("the whole run")

    def _say(self, what: str) -> None:
        self.waits = False
        LOGGER.warning("%s has seen nothing of %s, so %s: %s", self.hook, what, self.lost, self.advice)
