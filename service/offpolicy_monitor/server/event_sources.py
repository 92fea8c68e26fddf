"""Sources of events: the writes of the store for the writer and the merger, with a word to the events after each."""

from collections.abc import Mapping, Sequence
from typing import Any

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.server.events import Events
from offpolicy_monitor.store import Receipt, ShardRecord, StepKey, Store


class TellingStore:
    """Implements pipeline.writer.Ingest; what the writer waits for is a look at a flag where nobody listens."""

    def __init__(self, store: Store, events: Events) -> None:
        self._store, self._events = store, events

    def ingest(self, records: Sequence[ShardRecord]) -> Sequence[Receipt | Refusal]:
        """Store the records, then tell of them."""
        answers = self._store.ingest(records)
        self._events.stored(records, answers)
        return answers


class TellingUpkeep:
    """Implements pipeline.merger.Upkeep."""

    def __init__(self, store: Store, events: Events) -> None:
        self._upkeep, self._events = store.upkeep, events

    def merge(self, keys: Sequence[StepKey]) -> Mapping[StepKey, Any]:
        """The merges of steps."""
        return self._upkeep.merge(keys)

    def keep(self, merges: Any) -> int:
        """Keep them; how many steps changed."""
        return self._upkeep.keep(merges)

    def finished(self, receipt: Receipt, run: str) -> Receipt:
        """A receipt as it is after the merge, which is told."""
        whole = self._upkeep.finished(receipt, run)
        if receipt.unmerged is not None:
            _, step, minibatch, _ = receipt.unmerged
            self._events.merged(run, step, minibatch, whole)
        return whole
