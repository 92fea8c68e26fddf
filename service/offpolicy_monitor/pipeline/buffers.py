"""Reusable memory for request bodies: what the socket delivers is copied once, and arrays are views over it.

Sizes are powers of two, so that a buffer fits many bodies; what lies idle is bounded. A buffer may go back only when
no view of it is used any more: that is the caller's promise (`pipeline.stages`).
"""

from collections import defaultdict

import numpy as np

SMALLEST = 64 * 1024


class BodyBuffer:
    """Growing memory for one body. `view()` is what has been written so far."""

    def __init__(self, pool: "BufferPool", size: int) -> None:
        self._pool = pool
        self._memory = pool.take(size)
        self._used = 0

    def write(self, chunk: bytes) -> None:
        """Append a chunk; grows by doubling where the size was not known beforehand."""
        end = self._used + len(chunk)
        if end > len(self._memory):
            self._grow(end, 2 * len(self._memory))
        self._memory[self._used : end] = chunk
        self._used = end

    def reserve(self, size: int) -> None:
        """Have room for `size` bytes."""
        if size > len(self._memory):
            self._grow(size, size)

    def __len__(self) -> int:
        return self._used

    def view(self) -> memoryview:
        """The body, without a copy."""
        return self._memory[: self._used]

    def release(self) -> None:
        """Hand the memory back. No view of it may be used after this."""
        self._pool.give_back(self._memory)
        self._memory = memoryview(b"")
        self._used = 0

    def _grow(self, *sizes: int) -> None:
        larger = self._pool.take(max(sizes))
        larger[: self._used] = self._memory[: self._used]
        self._pool.give_back(self._memory)
        self._memory = larger


class BufferPool:
    """Idle buffers by size class, at most `idle_limit` bytes of them."""

    def __init__(self, idle_limit: int) -> None:
        self.idle_limit = idle_limit
        self.idle = 0
        self._free: defaultdict[int, list[memoryview]] = defaultdict(list)

    def take(self, size: int) -> memoryview:
        """Writable memory of at least `size` bytes, content undefined, aligned for every dtype."""
        size = max(SMALLEST, 1 << (size - 1).bit_length() if size > 1 else 1)
        free = self._free[size]
        if free:
            self.idle -= size
            return free.pop()
        return np.empty(size, np.uint8).data

    def give_back(self, memory: memoryview) -> None:
        """Keep a buffer for the next body, or drop it where enough lies idle."""
        if memory.readonly or self.idle + len(memory) > self.idle_limit:
            return
        self.idle += len(memory)
        self._free[len(memory)].append(memory)
