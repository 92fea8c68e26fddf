"""Recent: summaries of shards that this process has stored lately, so that a step is merged without reading them back.

What is kept is no promise: a merge asks the database which shards there are, and takes from here only those that are
the very ones (content and time of arrival). So a transaction that failed can leave nothing wrong behind.
"""

import threading
from collections import OrderedDict
from typing import Final

from offpolicy_monitor.store.records import Place, ShardRecord
from offpolicy_monitor.summary.step import StepSummary

#: Shards kept, of some 100 KB each; of more that wait for their steps the oldest steps are read back.
MOST: Final = 512

#: What one shard is known by: digest and time of arrival.
Identity = tuple[bytes, float]


class Recent:
    """By the places of steps and the numbers of shards. Safe to share between threads."""

    def __init__(self, most: int = MOST) -> None:
        self._most, self._count = most, 0
        self._steps: OrderedDict[Place, dict[int, tuple[Identity, StepSummary]]] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, place: Place, record: ShardRecord) -> None:
        """Keep the summary of a shard that is being stored; its step is then the newest one."""
        with self._lock:
            of_step = self._steps.pop(place, {})
            self._count += record.key.shard not in of_step
            of_step[record.key.shard] = (record.digest, record.received_at), record.summary
            self._steps[place] = of_step
            while self._count > self._most:
                self._count -= len(self._steps.popitem(last=False)[1])

    def get(self, place: Place, shard: int, identity: Identity) -> StepSummary | None:
        """The summary of a shard that is stored, if it is this very one."""
        with self._lock:
            known, summary = self._steps.get(place, {}).get(shard, (None, None))
        return summary if known == identity else None

    def drop(self, place: Place) -> None:
        """A step is complete: nobody asks for its shards any more."""
        with self._lock:
            self._count -= len(self._steps.pop(place, ()))
