"""A request body of the benchmarks, which the client of f832f41 makes as well: it is of no package but Python's."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Body:
    """A request body as buffers one after the other."""

    buffers: Sequence[bytes | memoryview]
    media_type: str

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.buffers))
