"""Recent: summaries of shards that this process has stored lately, so that a step is merged without reading them back.

Of a step of many shards those that are next in order are merged as they come, always from the first shard on, so that
the merge has the bits of one made at the end, and few summaries are kept at once. What is kept is no promise: a merge
asks the database which shards there are, and takes from here only those that are the very ones (content and time of
arrival). So a transaction that failed can leave nothing wrong behind.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Final

from offpolicy_monitor.store.rows.records import ShardRecord, StepKey
from offpolicy_monitor.summary.step import StepSummary, merge_all

#: Bytes kept by default, some hundred shards with every figure.
MOST: Final = 1 << 27
#: Shards that are next in order are merged when there are so many.
TOGETHER: Final = 32

#: What one shard is known by: digest and time of arrival.
Identity = tuple[bytes, float]
#: Shards of a gradient step by their numbers, in order.
Shards = Sequence[tuple[int, Identity]]


class _OfStep:
    """`merge` is that of the first shards, which `known` tells; the others by their numbers. `size` in bytes."""

    def __init__(self) -> None:
        self.known: list[Identity] = []
        self.merge: StepSummary | None = None
        self.others: dict[int, tuple[Identity, StepSummary]] = {}
        self.size = 0

    def put(self, record: ShardRecord) -> None:
        """One more shard, or one that is stored anew; not one of those that are merged."""
        before = self.others.get(record.key.shard)
        self.others[record.key.shard] = (record.digest, record.received_at), record.summary
        self.size += _size(record.summary) - (0 if before is None else _size(before[1]))
        following = list(self._following())
        if len(following) >= TOGETHER:
            self.merge = merge_all([*self._merged(), *(summary for _, summary in following)])
            self.known += [identity for identity, _ in following]
            self.others = {shard: of for shard, of in self.others.items() if shard >= len(self.known)}
            self.size = _size(self.merge) + sum(_size(summary) for _, summary in self.others.values())

    def parts(self, stored: Shards) -> list[StepSummary]:
        """What these shards are merged from, in order; nothing where one of them is not here."""
        first, others = stored[: len(self.known)], stored[len(self.known) :]
        if list(first) != list(enumerate(self.known)):
            return []
        found = [self.others.get(shard, (None, None)) for shard, _ in others]
        here = [summary for (known, summary), (_, identity) in zip(found, others, strict=True) if known == identity]
        kept = [summary for summary in here if summary is not None]
        return [*self._merged(), *kept] if len(kept) == len(others) else []

    def _merged(self) -> list[StepSummary]:
        return [] if self.merge is None else [self.merge]

    def _following(self) -> Iterator[tuple[Identity, StepSummary]]:
        numbers = range(len(self.known), len(self.known) + len(self.others))
        return (self.others[shard] for shard in takewhile(self.others.__contains__, numbers))


class Recent:
    """By the keys of steps: `most` bytes; of more that wait for their steps the oldest are read back.

    Safe to share between threads.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most, self._size = most, 0
        self._steps: OrderedDict[StepKey, _OfStep] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, key: StepKey, record: ShardRecord) -> None:
        """Keep the summary of a shard that is being stored; its step is then the newest one."""
        with self._lock:
            of_step = self._taken(key)
            # Stored anew, after a transaction that failed: what was merged is not what is stored.
            if record.key.shard < len(of_step.known):
                of_step = _OfStep()
            try:
                of_step.put(record)
            except Exception:
                # Shards that cannot be merged: whoever reads them back finds out, and tells it.
                return
            self._size += of_step.size
            self._steps[key] = of_step
            while self._size > self._most:
                self._taken(next(iter(self._steps)))

    def parts(self, key: StepKey, stored: Shards) -> list[StepSummary]:
        """Summaries whose merge, in this order, is that of all of these shards; none where one is not at hand."""
        with self._lock:
            of_step = self._steps.get(key)
            return [] if of_step is None else of_step.parts(stored)

    def drop(self, key: StepKey) -> None:
        """A step is complete: nobody asks for its shards any more."""
        with self._lock:
            self._taken(key)

    def _taken(self, key: StepKey) -> _OfStep:
        """What is kept of a step, which is no longer."""
        of_step = self._steps.pop(key, None) or _OfStep()
        self._size -= of_step.size
        return of_step


def _size(summary: StepSummary) -> int:
    """Bytes that a summary takes."""
    return summary.arrays.nbytes
