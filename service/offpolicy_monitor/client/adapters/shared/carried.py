"""Carried: a collector for a loss function that a framework pickles into its workers, once or before every step.

A copy that arrives in a process finds the collector that an earlier copy left there, so that gradient steps are
counted on and one monitor is made per process. Knows no framework, and no tensors.
"""

import uuid
from collections.abc import Callable

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.collector import Collector
from offpolicy_monitor.client.adapters.shared.made import made
from offpolicy_monitor.client.adapters.shared.place import Place

_here: dict[str, Collector] = {}


class Carried:
    """What a pickled loss holds in place of a collector.

    make        makes the monitor in the process where it is needed: `Monitor`, or a `functools.partial` of it
    first_step, minibatches, place  are the collector's
    """

    def __init__(self, make: Callable[[], Logs], *, first_step: int, minibatches: int, place: Place) -> None:
        self.key = uuid.uuid4().hex
        self.make, self.first_step, self.minibatches, self.place = make, first_step, minibatches, place

    def collector(self) -> Collector:
        """This process's collector, made at the first call."""
        if self.key not in _here:
            _here[self.key] = Collector(
                made(self.make), first_step=self.first_step, minibatches=self.minibatches, place=self.place
            )
        return _here[self.key]
