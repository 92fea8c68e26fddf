"""Recent: summaries of shards that this process has stored lately, so that a step is merged without reading them back.

What is kept is no promise: a merge asks the database which shards there are, and takes from here only those that are
the very ones (content and time of arrival). So a transaction that failed can leave nothing wrong behind.
"""

import threading
from collections import OrderedDict
from typing import Final

from offpolicy_monitor.store.rows.records import ShardRecord, StepKey
from offpolicy_monitor.summary.step import StepSummary

#: Bytes kept, some hundred shards with every figure; of more that wait for their steps the oldest are read back.
MOST: Final = 1 << 27

#: What one shard is known by: digest and time of arrival.
Identity = tuple[bytes, float]
#: Shards of a step by their numbers.
OfStep = dict[int, tuple[Identity, StepSummary]]


class Recent:
    """By the keys of steps and the numbers of shards. Safe to share between threads."""

    def __init__(self, most: int = MOST) -> None:
        self._most, self._size = most, 0
        self._steps: OrderedDict[StepKey, OfStep] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, key: StepKey, record: ShardRecord) -> None:
        """Keep the summary of a shard that is being stored; its step is then the newest one."""
        with self._lock:
            of_step = self._steps.pop(key, {})
            self._size -= _size(of_step)
            of_step[record.key.shard] = (record.digest, record.received_at), record.summary
            self._size += _size(of_step)
            self._steps[key] = of_step
            while self._size > self._most:
                self._size -= _size(self._steps.popitem(last=False)[1])

    def get(self, key: StepKey, shard: int, identity: Identity) -> StepSummary | None:
        """The summary of a shard that is stored, if it is this very one."""
        with self._lock:
            known, summary = self._steps.get(key, {}).get(shard, (None, None))
        return summary if known == identity else None

    def drop(self, key: StepKey) -> None:
        """A step is complete: nobody asks for its shards any more."""
        with self._lock:
            self._size -= _size(self._steps.pop(key, {}))


def _size(shards: OfStep) -> int:
    """Bytes that shards take."""
    return sum(summary.arrays.buffer.nbytes for _, summary in shards.values())
