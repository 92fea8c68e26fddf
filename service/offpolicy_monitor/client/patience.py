"""Patience: how long an answer is waited for, learned from those that came and those that did not.

A busy service answers late; who then gives up and posts again only adds to its work. So each request that was waited
for in vain doubles the time for the next one. What was stored in less is what the time comes back to. Knows no HTTP.
"""

from typing import Final

LONGEST: Final = 120.0  # seconds: how late a connection that swallows everything is given up


class Patience:
    """`seconds` to wait for the next answer: `shortest` at first, then up to LONGEST (or `shortest`, where longer)."""

    def __init__(self, shortest: float) -> None:
        self.shortest = self.seconds = shortest

    def in_vain(self) -> None:
        """An answer did not come in time."""
        self.seconds = min(2 * self.seconds, max(LONGEST, self.shortest))

    def stored_after(self, seconds: float) -> None:
        """An answer that a shard was stored took so long: twice that is enough for the next one.

        Other answers teach nothing: a refusal or a duplicate costs the service less than a shard that is new.
        """
        self.seconds = max(self.shortest, min(self.seconds, 2 * seconds))
