"""When to try again what failed: delays that double, with jitter, up to a cap. Knows keys and times alone."""

import random
from collections.abc import Callable, Collection
from typing import Final

from offpolicy_monitor.retry import doubled

FIRST: Final = 1.0
CAP: Final = 300.0
#: The longest that a receiver may ask to be left alone, seconds.
MOST_ASKED: Final = 3600.0


class Backoff:
    """Failures by key. A key that never failed is ready at once.

    `chance` answers a number in [0, 1), anew for each delay (retry.doubled).
    """

    def __init__(self, first: float = FIRST, cap: float = CAP, chance: Callable[[], float] = random.random) -> None:
        self._first, self._cap, self._chance = first, cap, chance
        self._failures: dict[str, int] = {}
        self._ready_at: dict[str, float] = {}

    def failed(self, key: str, now: float, asked: float | None = None) -> float:
        """Put the key off; answers for how long. A receiver that `asked` for longer gets it."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        own = doubled(failures, self._first, self._cap, self._chance())
        delay = max(own, min(asked or 0.0, MOST_ASKED))
        self._ready_at[key] = now + delay
        return delay

    def passed(self, key: str) -> None:
        """Forget the key's failures."""
        self._failures.pop(key, None)
        self._ready_at.pop(key, None)

    def wait(self, key: str, now: float) -> float:
        """Seconds until the key may be tried; 0 where it may be now."""
        return max(0.0, self._ready_at.get(key, now) - now)

    def keep(self, keys: Collection[str]) -> None:
        """Forget every other key: what they stood for is gone."""
        for key in set(self._failures) - set(keys):
            self.passed(key)
