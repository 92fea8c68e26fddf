"""Remembered: what this process has seen of runs, so that a shard that is new needs no look into the store.

It answers only for a shard that follows what it has stored here itself; whatever else comes is asked about. That spares
looks and promises nothing, for other processes store too: the transaction decides, and knows which method rows run.
Changed on one event loop; asked by any thread. Bounded: of what is forgotten the store is asked.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from offpolicy_monitor.methods import PRESETS, MethodRow, restored
from offpolicy_monitor.store import ShardKey

#: Runs and shards that are remembered, taken together.
MOST: Final = 1 << 14


@dataclass(frozen=True)
class Rows:
    """The method rows of a run: as they are stored (None: the default ones), and as they are run."""

    stored: list[dict[str, Any]] | None
    run: Sequence[MethodRow]

    @classmethod
    def of(cls, stored: list[dict[str, Any]] | None) -> "Rows":
        """The rows that a store answers."""
        return cls(stored, PRESETS if stored is None else restored(stored))


@dataclass
class _Step:
    attempt: int
    shards: int
    here: set[tuple[int, int]] = field(default_factory=set)


@dataclass
class _Run:
    """`after`: of steps up to this one, the store knows more than this process."""

    rows: Rows
    after: int
    steps: dict[int, _Step] = field(default_factory=dict)


class Remembered:
    """Runs by name, the one asked for least recently first."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self._shards = 0

    def rows(self, key: ShardKey, shards: int) -> Rows | None:
        """The rows to measure a shard by that is new, of a step of so many; None where the store is to be asked."""
        run = self._runs.get(key.run)
        if run is None:
            return None
        step = run.steps.get(key.step)
        if step is None:
            return run.rows if key.step > run.after else None
        known = (step.attempt, step.shards) != (key.attempt, shards) or (key.minibatch, key.shard) in step.here
        return None if known else run.rows

    def rows_of(self, run: str) -> Rows | None:
        """The rows that a run had when it was last asked about; None where it was not."""
        known = self._runs.get(run)
        return None if known is None else known.rows

    def asked(self, key: ShardKey, rows: Rows) -> None:
        """The store was asked about this shard, and said which rows run."""
        run = self._runs.setdefault(key.run, _Run(rows, key.step))
        run.rows = rows
        self._forget_most()

    def stored(self, key: ShardKey, shards: int) -> None:
        """A shard is stored."""
        run = self._runs.get(key.run)
        if run is None or key.step <= run.after:
            return
        self._runs.move_to_end(key.run)
        step = run.steps.get(key.step)
        if step is None or step.attempt != key.attempt:
            self._shards -= 0 if step is None else len(step.here)
            step = run.steps[key.step] = _Step(key.attempt, shards)
        self._shards += (key.minibatch, key.shard) not in step.here
        step.here.add((key.minibatch, key.shard))
        self._forget_most()

    def forget(self, name: str) -> None:
        """Nothing is known of a run any more."""
        run = self._runs.pop(name, None)
        self._shards -= 0 if run is None else sum(len(step.here) for step in run.steps.values())

    def _forget_most(self) -> None:
        while self._shards + len(self._runs) > self._most:
            self._forget_some()

    def _forget_some(self) -> None:
        """The run that was least recently stored; of a run that is alone the first half of its steps."""
        name, run = next(iter(self._runs.items()))
        if len(self._runs) > 1:
            self.forget(name)
            return
        for step in sorted(run.steps)[: (len(run.steps) + 1) // 2]:
            run.after = max(run.after, step)
            self._shards -= len(run.steps.pop(step).here)
