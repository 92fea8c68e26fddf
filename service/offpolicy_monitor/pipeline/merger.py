"""Merger: steps that are too large to be merged by the one writer are merged beside it, one at a time.

Requests whose shards wait for the same step share a merge, unless it had begun before they came. It knows the store's
upkeep and the writer through what they offer, and nothing of HTTP.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from offpolicy_monitor.pipeline.workers import Worker
from offpolicy_monitor.pipeline.writer import Writer
from offpolicy_monitor.store import Receipt, StepKey


class Upkeep(Protocol):
    """What merging needs of the store's upkeep."""

    def merge(self, keys: Sequence[StepKey]) -> Mapping[StepKey, Any]:
        """The merges of steps."""

    def keep(self, merges: Any) -> int:
        """Keep them; how many steps changed."""

    def finished(self, receipt: Receipt, run: str) -> Receipt:
        """A receipt as it is after the merge."""


class Merger:
    """Made inside a running event loop; `close` waits for a merge that was begun."""

    def __init__(self, upkeep: Upkeep, writer: Writer) -> None:
        self._upkeep, self._writer = upkeep, writer
        self._worker = Worker("merge")
        self.ages = self._worker.ages
        self._turn = asyncio.Lock()
        self._queued: dict[StepKey, asyncio.Task[bool]] = {}

    async def finish(self, run: str, receipt: Receipt) -> Receipt:
        """The receipt once its step is merged with its shard; as it was where nothing is to be done, or it cannot be.

        Raises Unavailable: the shard is stored, and its step will be merged later.
        """
        step = receipt.unmerged
        if step is None:
            return receipt
        queued = self._queued.get(step)
        if queued is None:
            queued = self._queued[step] = asyncio.create_task(self._merge(step))
        if not await asyncio.shield(queued):
            return receipt
        return await self._worker.run(lambda: self._upkeep.finished(receipt, run))

    def close(self) -> None:
        """Finish what was begun."""
        self._worker.close()

    async def _merge(self, step: StepKey) -> bool:
        """Whether there is a merge now with every shard that was stored before this began."""
        async with self._turn:
            del self._queued[step]
            merges = await self._worker.run(lambda: self._upkeep.merge([step]))
            if merges:
                await self._writer.call(lambda: self._upkeep.keep(merges))
            return bool(merges)
