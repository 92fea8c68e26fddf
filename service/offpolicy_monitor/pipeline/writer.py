"""Writer: the one thread that writes to the database, as many shards per transaction as are waiting. A shard that
comes alone may be written by the thread that brings it, which saves waking another one.

A commit costs an fsync whatever it holds, so shards that arrive during one commit share the next (group commit).
What nobody waits for gives way to shards, but not for longer than PATIENCE seconds per turn. It knows the store's
`ingest` and nothing of HTTP. A future is resolved only after its transaction is committed. The thread outlives whatever
a transaction raises; should it end all the same, nobody is left waiting for it.
"""

import asyncio
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import structlog

from offpolicy_monitor.errors import Refusal, Unavailable
from offpolicy_monitor.pipeline.workers import Ages, settle
from offpolicy_monitor.store import Receipt, ShardRecord

log = structlog.get_logger("offpolicy_monitor.pipeline")

Result = TypeVar("Result")
MAX_GROUP = 256
ANSWER_SECONDS = 8.0
#: How often within its patience the writer looks who has waited for longer.
LOOKS: Final = 20
SLOW: Final = "the database did not answer within {:g} s; whether this is stored is not known, so send it again"
ENDED: Final = "the thread that stores has ended; the service must be started again"
#: The longest that the last transaction may have taken, seconds, for the next one to be on the thread that brings it:
#: with a slow database shards gather meanwhile, and share the one after it.
QUICK: Final = 0.02
#: How long work of the background lets shards go first, seconds: its turns are short, and must come in the end.
PATIENCE = 1.0


class Ingest(Protocol):
    """What the writer needs of the store."""

    def ingest(self, records: Sequence[ShardRecord]) -> Sequence[Receipt | Refusal]:
        """Store the records in one transaction; a refused record comes back as its Refusal, in place."""


@dataclass(frozen=True)
class _Job:
    done: "asyncio.Future[Any]"

    @property
    def is_wanted(self) -> bool:
        """Whether somebody still waits for it."""
        return not self.done.done()


@dataclass(frozen=True)
class _Shard(_Job):
    record: ShardRecord


@dataclass(frozen=True)
class _Call(_Job):
    work: Callable[[], Any]


@dataclass(frozen=True)
class _Aside(_Call):
    until: float


class Writer:
    """Runs from construction to `close`; `ingest` and `call` are awaited on the event loop it was made on.

    `committed` is told the seconds of each transaction. Nobody waits for one longer than `patience` seconds: the answer
    is Unavailable then, and what has not begun never does. How many wait is bounded by how many requests there are.
    """

    def __init__(
        self,
        store: Ingest,
        committed: Callable[[float], None] = lambda seconds: None,
        max_group: int = MAX_GROUP,
        patience: float = ANSWER_SECONDS,
    ) -> None:
        self._store = store
        self._patience = patience
        self._committed = committed
        self._max_group = max_group
        self._loop = asyncio.get_running_loop()
        self.ages = Ages()
        self._jobs: queue.SimpleQueue[_Shard | _Call | None] = queue.SimpleQueue()
        self._asides: deque[_Aside] = deque()
        #: Held by whoever writes.
        self._writing = threading.Lock()
        self._last = math.inf
        self._thread = threading.Thread(target=self._work, name="store", daemon=True)
        self._thread.start()
        self._loop.call_later(patience / LOOKS, self._look)

    async def ingest(self, record: ShardRecord) -> Receipt:
        """Commit one shard together with whatever else is waiting; raises its Refusal, or Unavailable."""
        done: asyncio.Future[Receipt] = self._loop.create_future()
        self.put(record, done)
        try:
            return await done
        finally:
            del done  # its error leads to this frame

    def put(self, record: ShardRecord, done: "asyncio.Future[Receipt]") -> None:
        """The same for who waits for `done`; from any thread."""
        self._enter(_Shard(done, record))

    def write(self, record: ShardRecord, done: "asyncio.Future[Receipt]") -> None:
        """The same by the calling thread, where nobody writes and the last transaction was quick; never on the loop."""
        if self._last > QUICK or not self._thread.is_alive() or not self._writing.acquire(blocking=False):
            self.put(record, done)
            return
        try:
            self.ages.enter(done)
            self._commit([_Shard(done, record)])
        finally:
            self._writing.release()

    @property
    def is_writing(self) -> bool:
        """Whether a transaction is under way, or has just ended."""
        return self._writing.locked()

    async def call(self, work: Callable[[], Result]) -> Result:
        """Run another write of the store (an update, a deletion) in its turn; raises what it does, or Unavailable."""
        done: asyncio.Future[Result] = self._loop.create_future()
        self._enter(_Call(done, work))
        return await done

    def _enter(self, job: "_Shard | _Call") -> None:
        self.ages.enter(job.done)
        self._jobs.put(job)

    def _look(self) -> None:
        """Answer those that have waited for too long, of whom the thread passes over what it has not begun."""
        alive = self._thread.is_alive()
        message = SLOW.format(self._patience) if alive else ENDED
        refusal = Unavailable(503, "store-unavailable", message, retry_after=2)
        late = self.ages.older(self._patience if alive else 0.0)
        self._settle([(done, refusal) for done in late if isinstance(done, asyncio.Future)])
        self._loop.call_later(self._patience / LOOKS, self._look)

    async def aside(self, work: Callable[[], Result]) -> Result:
        """Run a write that nobody waits for once no shard is waiting; Unavailable where the writer is closed first."""
        if not self._thread.is_alive():
            raise Unavailable(503, "store-unavailable", ENDED)
        done: asyncio.Future[Result] = self._loop.create_future()
        self._jobs.put(_Aside(done, work, time.monotonic() + PATIENCE))
        return await done

    def close(self) -> None:
        """Write what is queued, then end the thread; a transaction that hangs is left to itself."""
        self._jobs.put(None)
        self._thread.join(self._patience)

    def _work(self) -> None:
        """Serve until told to end. Nothing may end the thread; what does all the same is told to those that wait."""
        try:
            while self._round():
                pass
        except BaseException as error:
            log.critical(ENDED, exc_info=error)
        finally:
            self._give_up()

    def _round(self) -> bool:
        """A group of shards in one transaction, then at most one call and one aside; False where the end was asked."""
        job = self._next() if self._asides else self._jobs.get()
        with self._writing:
            return self._written(job)

    def _written(self, job: "_Shard | _Call | _Nothing | None") -> bool:
        """The same from this job on."""
        group: list[_Shard] = []
        while isinstance(job, _Shard | _Aside):
            if isinstance(job, _Aside):
                self._asides.append(job)
            elif job.is_wanted:
                group.append(job)
            else:
                self.ages.leave(job.done)
            job = self._next() if len(group) < self._max_group else _NOTHING
        if group:
            self._commit(group)
        if isinstance(job, _Call) and job.is_wanted:
            self._settle([(job.done, self._outcome(job.work))])
        if job is not None and self._asides and (not group or self._asides[0].until <= time.monotonic()):
            aside = self._asides.popleft()
            self._settle([(aside.done, self._outcome(aside.work))])
        return job is not None

    def _give_up(self) -> None:
        """Refuse what is still queued when the thread ends."""
        self._settle([(aside.done, Unavailable(503, "store-unavailable", ENDED)) for aside in self._asides])
        while not isinstance(job := self._next(), _Nothing):
            if job is not None:
                self._settle([(job.done, Unavailable(503, "store-unavailable", ENDED))])

    def _next(self) -> "_Shard | _Call | _Nothing | None":
        try:
            return self._jobs.get_nowait()
        except queue.Empty:
            return _NOTHING

    def _commit(self, group: list[_Shard]) -> None:
        """One transaction; where a defect fails it, one for each shard, so that only the shard at fault fails."""
        outcome = self._outcome(lambda: self._ingested([shard.record for shard in group]))
        if len(group) > 1 and isinstance(outcome, Exception) and not isinstance(outcome, Unavailable):
            for shard in group:
                self._commit([shard])
            return
        answers = [outcome] * len(group) if isinstance(outcome, BaseException) else outcome
        self._settle([(shard.done, answer) for shard, answer in zip(group, answers, strict=True)])

    def _ingested(self, records: list[ShardRecord]) -> list[Receipt | Refusal]:
        """An answer for each record, from one transaction."""
        began = time.perf_counter()
        try:
            answers = list(self._store.ingest(records))
        finally:
            self._last = time.perf_counter() - began
            self._committed(self._last)
        if len(answers) != len(records):
            raise RuntimeError(f"{len(answers)} answers to {len(records)} records")
        return answers

    def _outcome(self, work: Callable[[], Any]) -> Any:
        """What `work` returns, or the error it raises: the thread must outlive every failure of a transaction."""
        try:
            return self.ages.count(work)
        except Exception as error:
            return error

    def _settle(self, answers: "list[tuple[asyncio.Future[Any], Any]]") -> None:
        """Hand the answers to the event loop in one call, after all that would keep it from the interpreter's lock."""
        for done, _ in answers:
            self.ages.leave(done)
        settle(self._loop, answers)


class _Nothing:
    """No further job is waiting (None means: end)."""


_NOTHING = _Nothing()
