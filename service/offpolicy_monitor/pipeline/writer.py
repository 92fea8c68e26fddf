"""Writer: the one thread that writes to the database, as many shards a transaction as are waiting.

A commit costs an fsync whatever it holds, so shards that arrive during one commit share the next (group commit).
It knows the store's `ingest` and nothing of HTTP. A future is resolved only after its transaction is committed.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from offpolicy_monitor.errors import Refusal, Unavailable
from offpolicy_monitor.store import Receipt, ShardRecord

Result = TypeVar("Result")
MAX_GROUP = 256
MAX_WAITING = 4096


class Ingest(Protocol):
    """What the writer needs of the store."""

    def ingest(self, records: Sequence[ShardRecord]) -> Sequence[Receipt | Refusal]:
        """Store the records in one transaction; a refused record comes back as its Refusal, in place."""


@dataclass(frozen=True)
class _Shard:
    record: ShardRecord
    done: "asyncio.Future[Any]"


@dataclass(frozen=True)
class _Call:
    work: Callable[[], Any]
    done: "asyncio.Future[Any]"


class Writer:
    """Runs from construction to `close`; `ingest` and `call` are awaited on the event loop it was made on.

    `committed` is told the seconds of each transaction.
    """

    def __init__(
        self,
        store: Ingest,
        committed: Callable[[float], None] = lambda seconds: None,
        max_group: int = MAX_GROUP,
        depth: int = MAX_WAITING,
    ) -> None:
        self._store = store
        self._committed = committed
        self._max_group = max_group
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(depth)
        self._jobs: queue.SimpleQueue[_Shard | _Call | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="store", daemon=True)
        self._thread.start()

    async def ingest(self, record: ShardRecord) -> Receipt:
        """Commit one shard together with whatever else is waiting; raises its Refusal, or Unavailable."""
        async with self._slots:
            done: asyncio.Future[Receipt] = self._loop.create_future()
            self._jobs.put(_Shard(record, done))
            return await done

    async def call(self, work: Callable[[], Result]) -> Result:
        """Run another write of the store (an update, a sweep) in its turn."""
        async with self._slots:
            done: asyncio.Future[Result] = self._loop.create_future()
            self._jobs.put(_Call(work, done))
            return await done

    def close(self) -> None:
        """Write what is queued, then end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        """One round a loop: a group of shards in one transaction, then at most one call."""
        while True:
            job: _Shard | _Call | _Nothing | None = self._jobs.get()
            group: list[_Shard] = []
            while isinstance(job, _Shard):
                group.append(job)
                job = self._next() if len(group) < self._max_group else _NOTHING
            if group:
                self._commit(group)
            if isinstance(job, _Call):
                self._settle([(job.done, _outcome(job.work))])
            if job is None:
                return

    def _next(self) -> "_Shard | _Call | _Nothing | None":
        try:
            return self._jobs.get_nowait()
        except queue.Empty:
            return _NOTHING

    def _commit(self, group: list[_Shard]) -> None:
        """One transaction; where a defect fails it, one for each shard, so that only the shard at fault fails."""
        began = time.perf_counter()
        outcome = _outcome(lambda: self._store.ingest([shard.record for shard in group]))
        self._committed(time.perf_counter() - began)
        if len(group) > 1 and isinstance(outcome, Exception) and not isinstance(outcome, Unavailable):
            for shard in group:
                self._commit([shard])
            return
        answers = [outcome] * len(group) if isinstance(outcome, BaseException) else list(outcome)
        self._settle([(shard.done, answer) for shard, answer in zip(group, answers, strict=True)])

    def _settle(self, answers: "list[tuple[asyncio.Future[Any], Any]]") -> None:
        """Hand the answers to the event loop in one call; a loop that is gone has nobody left to answer."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_resolve, answers)


class _Nothing:
    """No further job is waiting (None means: end)."""


_NOTHING = _Nothing()


def _outcome(work: Callable[[], Any]) -> Any:
    """What `work` returns, or the error it raises: the thread must outlive every failure of a transaction."""
    try:
        return work()
    except Exception as error:
        return error


def _resolve(answers: "list[tuple[asyncio.Future[Any], Any]]") -> None:
    for done, answer in answers:
        if done.done():
            continue
        if isinstance(answer, BaseException):
            done.set_exception(answer)
        else:
            done.set_result(answer)
