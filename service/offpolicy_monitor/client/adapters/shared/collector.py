"""Collector: the rows of one gradient step, kept until the step is over, and then posted as one shard.

For hooks that see a micro-batch or a single sequence and are not told how many are still to come. A gradient step is
over when the optimizer steps, or says that it leaves its step out, as Megatron's do. One that is skipped, for a
gradient that is not finite, may only clear its gradients: then it is over when the next sequences come, or when the run
ends. Where a framework says which step it is at (`at`), its word goes first.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.client.adapters.shared.ends import before_end
from offpolicy_monitor.client.adapters.shared.optimizers import at_rest, listen
from offpolicy_monitor.client.adapters.shared.place import Place, of_process
from offpolicy_monitor.client.adapters.shared.quiet import quiet
from offpolicy_monitor.client.adapters.shared.unseen import Unseen
from offpolicy_monitor.client.counters import LOGGER

#: Values of all arrays together that a gradient step may hold on one rank, 256 MiB of float32.
MOST: Final = 1 << 26


def before(step: int) -> int:
    """How many steps there were before one, counted from 1: so often were weights synced where each of them ends so."""
    return step - 1


class Collector:
    """Counts gradient steps, or is told them, and posts the rows of each.

    first_step   the step of the first gradient step: 0, or where a resumed run goes on
    minibatches  gradient steps of one training step
    first_minibatch  the number of the first of them, where another hook posts under the lower ones
    unseen       is told of optimizer steps from now on, until the first sequences come
    version      of a step: how often weights had been synced to the engines when it began
    by_clearing  the framework clears its gradients once, at the end of every gradient step and nowhere else: that ends
                 the step, whether the optimizer stepped never, once or in parts, and one without rows is counted too
    most         values that a gradient step may hold; of a larger one nothing is posted
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
        by_clearing: bool = False,
        most: int = MOST,
    ) -> None:
        self.monitor, self.version, self.place = monitor, version, place
        self.minibatches, self.first_minibatch = minibatches, first_minibatch
        self.unseen, self.by_clearing, self.most = unseen, by_clearing, most
        self.step, self.minibatch, self.told = first_step, 0, False
        self.rows: dict[str, list[Any]] = {}
        # Found while there are process groups: at the end of a run there may be none.
        self.where: tuple[int, int] | None = None
        self.held, self.warned = 0, False
        self.over, self.resting = False, False
        before_end(monitor, self)
        if unseen is not None or by_clearing:
            self.listen()

    @property
    def waiting(self) -> bool:
        """Whether sequences of this gradient step were added, kept or not."""
        return bool(self.rows) or self.held > self.most

    def listen(self) -> None:
        """Hear of every optimizer of this process from now on."""
        listen(self)

    def at(self, step: int, minibatch: int | None = None) -> None:
        """The framework is at this step, and at this gradient step of it (None: they are counted within the step).

        Call it before `add`, as often as it is known. Rows of an earlier gradient step are posted first, as that one.
        """
        if step != self.step or minibatch not in (None, self.minibatch):
            self.post()
        if minibatch is None:
            minibatch = self.minibatch if step == self.step else 0
        self.step, self.minibatch, self.told = step, minibatch, True

    def add(self, rows: Mapping[str, Sequence[Any]]) -> None:
        """Add sequences: by array name, one row [n] each. The first call starts to listen to optimizers."""
        self.listen()
        if self.unseen is not None:
            self.unseen.forward()
        if self.over:
            self.post()
        if not self.waiting:
            self.where = self.place()
        self.held += sum(len(row) for values in rows.values() for row in values)
        if self.held > self.most:
            self._let_go()
            return
        for name, values in rows.items():
            self.rows.setdefault(name, []).extend(values)

    def stepped(self, optimizer: Any) -> None:
        """An optimizer has stepped, or left its step out. Where nothing was added, that was another model's."""
        if self.by_clearing:
            self.resting = not self.waiting and at_rest(optimizer)
        elif self.waiting:
            self.post()
        elif self.unseen is not None:
            self.unseen.step()

    def cleared(self, optimizer: Any) -> None:
        """An optimizer has cleared its gradients. Where sequences wait for its step, it may have left it out."""
        if self.by_clearing and not self.resting:
            self._end()
        self.over, self.resting = self.waiting, False

    def post(self) -> None:
        """End the gradient step. Nothing happens where nothing was added."""
        if self.waiting:
            self._end()

    def settle(self) -> None:
        """The run ends. A gradient step that was skipped is posted, one that has not come to its end is not."""
        if self.over:
            self.post()

    def drop(self) -> None:
        """Forget the rows of this gradient step: it was given up, and is made once more."""
        self.rows, self.held, self.over = {}, 0, False

    def _end(self) -> None:
        step, minibatch, rows = self.step, self.minibatch, self.rows
        self.rows, self.held, self.over = {}, 0, False
        self.minibatch += 1
        if not self.told and self.minibatch == self.minibatches:
            self.step, self.minibatch = step + 1, 0
        if rows:
            _post(self.monitor, self, step, minibatch, rows)

    def _let_go(self) -> None:
        self.rows = {}
        if not self.warned:
            self.warned = True
            LOGGER.warning(
                "%d values on one rank and no end of the gradient step: it is not posted. Is Optimizer.step called?",
                self.held,
            )


@quiet
def _post(monitor: Logs, collector: Collector, step: int, minibatch: int, rows: dict[str, list[Any]]) -> None:
    if collector.where is None:
        return
    minibatches = max(collector.minibatches, minibatch + 1)
    monitor.log(
        step=step,
        minibatch=collector.first_minibatch + minibatch,
        minibatches=collector.first_minibatch + minibatches,
        shard=collector.where[0],
        shards=collector.where[1],
        policy_version=collector.version(step),
        **rows,
    )
