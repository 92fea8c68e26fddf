"""Collector: the rows of one gradient step, kept until the optimizer steps, and then posted as one shard.

For hooks that see a micro-batch or a single sequence and are told neither the step nor how many are still to come.
The end of a gradient step is the optimizer's step, which torch tells to any number of listeners.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.place import Place, of_process
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.unseen import Unseen


def before(step: int) -> int:
    """How many steps there were before one, counted from 1: so often were weights synced where each of them ends so."""
    return step - 1


class Collector:
    """Counts gradient steps and posts what was added since the last one.

    first_step   the step of the first gradient step: 0, or where a resumed run goes on
    minibatches  gradient steps of one training step
    first_minibatch  the number of the first of them, where another hook posts under the lower ones
    unseen       is told of optimizer steps from now on, until the first sequences come
    version      of a step: how often weights had been synced to the engines when it began
    """

    def __init__(
        self,
        monitor: Logs,
        *,
        first_step: int = 0,
        minibatches: int = 1,
        first_minibatch: int = 0,
        version: Callable[[int], int] = before,
        place: Place = of_process,
        unseen: Unseen | None = None,
    ) -> None:
        self.monitor, self.version, self.place = monitor, version, place
        self.first_step, self.minibatches, self.first_minibatch = first_step, minibatches, first_minibatch
        self.taken = 0
        self.rows: dict[str, list[Any]] = {}
        self.listening, self.unseen = False, unseen
        if unseen is not None:
            self.listen()

    def listen(self) -> None:
        """Hear of the steps of every optimizer of this process from now on."""
        optimizers = importlib.import_module("torch.optim.optimizer")
        optimizers.register_optimizer_step_post_hook(lambda *_: self.post())
        self.listening = True

    def add(self, rows: Mapping[str, Sequence[Any]]) -> None:
        """Add sequences: by array name, one row [n] each. The first call starts to listen to optimizers."""
        if not self.listening:
            self.listen()
        if self.unseen is not None:
            self.unseen.forward()
        for name, values in rows.items():
            self.rows.setdefault(name, []).extend(values)

    def post(self) -> None:
        """End the gradient step. Nothing happens where nothing was added: that was another model's optimizer."""
        if self.rows:
            rows, self.rows = self.rows, {}
            position, self.taken = self.taken, self.taken + 1
            _post(self.monitor, self, position, rows)
        elif self.unseen is not None:
            self.unseen.step()


@quiet
def _post(monitor: Logs, collector: Collector, position: int, rows: dict[str, list[Any]]) -> None:
    place = collector.place()
    if place is None:
        return
    passed, minibatch = divmod(position, collector.minibatches)
    step = collector.first_step + passed
    monitor.log(
        step=step,
        minibatch=collector.first_minibatch + minibatch,
        minibatches=collector.first_minibatch + collector.minibatches,
        shard=place[0],
        shards=place[1],
        policy_version=collector.version(step),
        **rows,
    )
