"""StepIndex: which gradient steps there are, of which attempt and policy, and when they came, in columns. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.store.rows.tables import steps

Integers = NDArray[np.int64]
#: A policy version that was not sent.
ABSENT: Final = np.iinfo(np.int64).min


@dataclass(frozen=True)
class StepIndex:
    """[n] each, ascending by step and minibatch; times in unix seconds, a policy version ABSENT where none was sent."""

    step: Integers
    minibatch: Integers
    policy_version: Integers
    attempt: Integers
    first_received_at: NDArray[np.float64]
    last_received_at: NDArray[np.float64]

    #: What is read beside step and minibatch.
    COLUMNS: ClassVar = (steps.c.policy_version, steps.c.attempt, steps.c.first_received_at, steps.c.last_received_at)

    @classmethod
    def none(cls) -> "StepIndex":
        """Of no step."""
        return cls.of([])

    @classmethod
    def of(cls, rows: Sequence[Any]) -> "StepIndex":
        """Of rows that begin with a step, its minibatch and COLUMNS."""
        step, minibatch, versions, attempt, *times = list(zip(*(row[:6] for row in rows), strict=True)) or [()] * 6
        known = [ABSENT if version is None else version for version in versions]
        steps, minibatches, latest, attempts = (np.array(each, np.int64) for each in (step, minibatch, known, attempt))
        first, last = (np.array(each, np.float64) for each in times)
        return cls(steps, minibatches, latest, attempts, first, last)

    @classmethod
    def joined(cls, parts: Sequence["StepIndex"]) -> "StepIndex":
        """One after another."""
        if not parts:
            return cls.none()
        return cls(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls)))

    @classmethod
    def from_bytes(cls, stored: bytes) -> "StepIndex":
        """What `to_bytes` has written."""
        table = np.frombuffer(stored, "<i8").reshape(len(fields(cls)), -1)
        return cls(*table[:4], *table[4:].view(np.float64))

    def to_bytes(self) -> bytes:
        """Column by column, eight bytes each."""
        return b"".join(getattr(self, each.name).tobytes() for each in fields(self))

    @property
    def nbytes(self) -> int:
        """Of all columns."""
        return sum(getattr(self, each.name).nbytes for each in fields(self))

    def __len__(self) -> int:
        return len(self.step)

    def __getitem__(self, chosen: Any) -> "StepIndex":
        return StepIndex(*(getattr(self, each.name)[chosen] for each in fields(self)))

    def last_of_each_step(self) -> NDArray[np.bool_]:
        """[n] bool: the last gradient step of each training step."""
        return np.append(self.step[1:] != self.step[:-1], [True])[: len(self)]
