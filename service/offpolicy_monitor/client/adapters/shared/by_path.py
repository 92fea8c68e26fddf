"""ByPath: what functions that a framework loads by a path in its options have in common in each worker process.

Nobody hands them a monitor, so the process makes one when it is first needed. Some are told which rollout and gradient
step it is, others see the micro-batches: here both meet. Knows no framework.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.collector import Collector
from offpolicy_monitor.client.adapters.shared.made import made
from offpolicy_monitor.client.adapters.shared.place import Place
from offpolicy_monitor.client.adapters.shared.unseen import Unseen
from offpolicy_monitor.client.counters import LOGGER


class Counting(NamedTuple):
    """How a framework's options count.

    first        the rollout that it began with, None where this process does not know it
    minibatches  gradient steps per rollout
    version      of a rollout: how often weights had been synced when its training began
    """

    first: int | None
    minibatches: int
    version: Callable[[int], int]


class ByPath:
    """The monitor and the collector of a process.

    place   which shard it posts
    unseen  makes what is told of gradient steps that begin here, until the first micro-batch comes
    advice  what to do where nothing says which rollout it is
    """

    def __init__(self, place: Place, unseen: Callable[[], Unseen], advice: str) -> None:
        self.place, self.make_unseen, self.advice = place, unseen, advice
        self.given: Logs | None = None
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget what was counted."""
        self.unseen, self.warned = self.make_unseen(), False
        self.collector: Collector | None = None
        self.at: tuple[int, int] | None = None

    def use(self, monitor: Logs) -> None:
        """Post to this monitor from now on, instead of one made from the environment."""
        self.given = monitor
        self.begin_anew()

    def monitor(self) -> Logs:
        """The monitor given, or one made from OFFPOLICY_URL and OFFPOLICY_RUN."""
        if self.given is None:
            self.given = made(lambda: importlib.import_module("offpolicy_monitor.client").Monitor())
        return self.given

    def begin(self, counting: Counting, rollout: int, minibatch: int) -> None:
        """A gradient step begins. One that begins once more was given up: what was seen of it is dropped."""
        collector = self._collector(counting)
        if (rollout, minibatch) == self.at:
            collector.drop()
        self.at = rollout, minibatch
        collector.at(rollout, minibatch)
        if self.place() is not None:
            self.unseen.step()

    def add(self, counting: Counting, rows: Mapping[str, Sequence[Any]]) -> None:
        """The sequences of one micro-batch.

        Without `begin` gradient steps are counted from the first rollout; nothing is posted where that is not known.
        """
        self.unseen.forward()
        if self.at is None and counting.first is None:
            self._warn()
        else:
            self._collector(counting).add(rows)

    def _collector(self, counting: Counting) -> Collector:
        if self.collector is None:
            first, minibatches, version = counting
            self.collector = Collector(
                self.monitor(), first_step=first or 0, minibatches=minibatches, version=version, place=self.place
            )
        return self.collector

    def _warn(self) -> None:
        if not self.warned:
            self.warned = True
            LOGGER.warning("a resumed run does not say here which rollout it is, so nothing is posted: %s", self.advice)
