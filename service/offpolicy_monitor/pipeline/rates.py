"""Rates: how many batches and how many of their bytes per second each run may send, before anything of a body is held.

A run may send at once what its rate gives in a burst's length, and goes on as that comes back. A body that is larger
than that is let in where nothing of it is taken, and paid for later. All that is kept of a run is
when its allowance is whole again. Knows names and numbers, and no HTTP.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.pipeline.pace import Pace
from offpolicy_monitor.settings import Settings

Clock = Callable[[], float]
#: Runs that are remembered: of more, those that have sent nothing for longest are taken for new ones.
MOST: Final = 1 << 14
_UNBOUNDED: Final = nullcontext()


class Rate:
    """`rate` per second for each name, and what comes back in `burst` seconds at once; a rate of 0 bounds nothing."""

    def __init__(self, rate: float, burst: float, clock: Clock = time.monotonic, most: int = MOST) -> None:
        self.rate, self.burst = rate, burst
        self._clock, self._most = clock, most
        self._whole_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        """How many names are remembered."""
        return len(self._whole_at)

    def wait(self, name: str, amount: float) -> float:
        """Seconds until so much of the allowance is there, or all of it where it is less; 0 where that is so now."""
        if name not in self._whole_at:
            return 0.0
        taken = self._whole_at[name] - self._clock()
        return max(0.0, taken + min(amount / self.rate, self.burst) - self.burst)

    def take(self, name: str, amount: float) -> None:
        """Take so much of the allowance; what is less than nothing is given back."""
        if not self.rate:
            return
        now = self._clock()
        whole_at = max(self._whole_at.pop(name, now), now) + amount / self.rate
        if whole_at > now:
            self._whole_at[name] = whole_at
        if len(self._whole_at) > self._most:
            self._whole_at.popitem(last=False)


class RunRates:
    """The two rates of every run, by the settings."""

    def __init__(self, settings: Settings, clock: Clock = time.monotonic) -> None:
        burst = settings.run_burst
        self._requests = Rate(settings.run_requests_per_second, burst, clock)
        self._bytes = Rate(settings.run_bytes_per_second, burst, clock)
        self._settings = settings
        #: Told of what a run has taken, so that other workers count it too.
        self.tell: Callable[[str, int, int], None] = lambda run, requests, size: None

    def take(self, run: str, requests: int, size: int) -> None:
        """So many batches and bytes of a run have come, here or at another worker."""
        self._requests.take(run, requests)
        self._bytes.take(run, size)

    def counted(self, run: str | None, declared: int, pace: Pace) -> AbstractContextManager[None]:
        """The block receives a batch of a run that declares so many bytes; what has come at its end is what counts.

        Unavailable (429) where the run has sent too much of late.
        """
        if run is None or not (self._requests.rate or self._bytes.rate):
            return _UNBOUNDED
        return self._counting(run, declared, pace)

    @contextmanager
    def _counting(self, run: str, declared: int, pace: Pace) -> Iterator[None]:
        self._check("batches", self._requests, "run_requests_per_second", run, 1)
        self._check("bytes", self._bytes, "run_bytes_per_second", run, declared)
        self._take(run, 1, declared)
        try:
            yield
        finally:
            self._take(run, 0, pace.received - declared)

    def _take(self, run: str, requests: int, size: int) -> None:
        if requests or size:
            self.take(run, requests, size)
            self.tell(run, requests, size)

    def _check(self, what: str, rate: Rate, setting: str, run: str, amount: float) -> None:
        wait = rate.wait(run, amount)
        if not wait:
            return
        seconds, variable = math.floor(wait) + 1, self._settings.variable(setting)
        detail = (
            f"run {run} has sent more than {rate.rate:g} {what} per second, and what {rate.burst:g} s of that come to "
            f"at once; send it again in {seconds} s, or raise {variable}"
        )
        raise Unavailable(429, f"run-{what}-rate", detail, retry_after=seconds)
