"""Record: one batch as a dump file gave it, and Bad: a position in a file that gave none.

Values that readers make and the posting loop consumes. They know neither formats nor HTTP.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from offpolicy_monitor.errors import OffpolicyMonitorError


@dataclass(frozen=True, eq=False)
class Record:
    """One batch. `envelope` and `arrays` have the contract's names; arrays are numpy's, or lists as JSON has them.

    `where` says file and line for people; `end` is how many bytes of its unit are read, `line` how many lines of its
    file, once it is stored. Arrays named in `bfloat16` hold uint16 bit patterns.
    """

    where: str
    envelope: Mapping[str, Any]
    arrays: Mapping[str, Any]
    end: int
    line: int = 0
    bfloat16: frozenset[str] = field(default=frozenset())

    @property
    def kwargs(self) -> dict[str, Any]:
        """What `Monitor.log` would be called with for the same batch."""
        return {**self.envelope, **self.arrays}

    @property
    def order(self) -> tuple[int, int, int]:
        """Step, gradient step, shard: the order in which records are posted."""
        step, minibatch, shard = (self.envelope.get(name) or 0 for name in ("step", "minibatch", "shard"))
        return int(step), int(minibatch), int(shard)


@dataclass(frozen=True)
class Bad:
    """A line, or a whole file, that holds no batch: where, why, and how far the reader is behind it."""

    where: str
    reason: str
    end: int
    line: int = 0
    order: tuple[int, int, int] = (0, 0, 0)


Item = Record | Bad
#: What reading a framework's own structure raises where something else is there.
OTHERWISE = (LookupError, TypeError, AttributeError, ValueError, OverflowError)


class Unreadable(OffpolicyMonitorError):
    """Content that holds no batch; what reads a file turns it into a Bad."""


class Unfinished(OffpolicyMonitorError):
    """A file that is not whole yet: its writer may still be at it, or was killed."""
