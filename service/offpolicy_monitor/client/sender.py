"""Sender: the background thread that takes shards from the queue and posts them, one after the other, in order.

Everything slow happens here: waiting for copies, encoding, HTTP, back-off. Nothing that goes wrong leaves the thread;
it is counted. Knows the service's paths, and nothing of how shards come about.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from offpolicy_monitor.client import outcome
from offpolicy_monitor.client.backoff import delay
from offpolicy_monitor.client.connection import JSON, Answer, Connection
from offpolicy_monitor.client.counters import Counters
from offpolicy_monitor.client.halves import Halves
from offpolicy_monitor.client.outcome import Outcome, Tries
from offpolicy_monitor.client.patience import Patience
from offpolicy_monitor.client.queue import ByteQueue
from offpolicy_monitor.client.run import Run
from offpolicy_monitor.client.shard import Buffers, Shard
from offpolicy_monitor.wire.frame import MEDIA_TYPE

#: What answers to a trainer are: some tens of KB. Whatever sends more is no such service.
ANSWER_BYTES: Final = 16 << 20
#: Asks for an answer without figures, which nobody here would look at, and what a service says that cannot do so.
BRIEF: Final = "?detail=none"
UNKNOWN_PARAMETER: Final = "unknown-parameter"


class Sender:
    """Posts what is queued for one run; `start` begins, closing the queue ends."""

    def __init__(
        self,
        connection: Connection,
        run: Run,
        queue: ByteQueue[Shard],
        halves: Halves,
        counters: Counters,
        patience: Patience,
        on_answer: Callable[[Mapping[str, Any]], None] | None = None,
        on_stored: Callable[[Shard], None] | None = None,
    ) -> None:
        self._connection, self._run, self._patience = connection, run, patience
        self._queue, self._halves, self._counters = queue, halves, counters
        self._on_answer, self._on_stored = on_answer, on_stored
        self._query = BRIEF if on_answer is None else ""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        # Kept from shard to shard: a service that is away is not asked anew for each one that the queue drops.
        self._failures, self._again_at = 0, 0.0

    def start(self) -> None:
        """Begin, unless it has begun."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="offpolicy-monitor", daemon=True)
                self._thread.start()

    def join(self, deadline: float) -> None:
        """Wait for the thread's end, at most `deadline` seconds, then break off what it waits for."""
        if self._thread is not None:
            self._thread.join(max(deadline, 0.0))

    def _work(self) -> None:
        while (taken := self._queue.take()) is not None:
            ticket, shard = taken
            try:
                self._deliver(ticket, shard)
            except Exception as error:  # the thread's boundary: whatever went wrong, training goes on
                if self._queue.done(ticket):
                    self._counters.refuse(type(error).__name__, str(error) or type(error).__name__)
        self._connection.close()

    def _deliver(self, ticket: int, shard: Shard) -> None:
        """Post until it is settled or given up."""
        if not self._waited(ticket):
            return
        tries = Tries()
        while tries.again(found := self._try(shard)):
            if found.kind == "gone":
                whole = self._whole(shard)
                if whole is None:
                    break
                shard = whole
            elif not self._rest(ticket, found):
                return
            self._counters.add("retries")
        self._failures, self._again_at = 0, 0.0
        if self._queue.done(ticket):
            self._count(found)

    def _rest(self, ticket: int, found: Outcome) -> bool:
        """Wait before the next try; False where the shard was given up meanwhile, of which nothing is said here."""
        if not self._queue.holds(ticket):
            return False
        self._counters.tell(found.reason, f"{found.message}; trying again")
        self._failures += 1
        self._again_at = time.monotonic() + delay(self._failures, found.retry_after)
        return self._waited(ticket)

    def _waited(self, ticket: int) -> bool:
        """Sleep until it may be tried again; False where the shard was dropped meanwhile."""
        return self._queue.rest(ticket, self._again_at - time.monotonic())

    def _try(self, shard: Shard) -> Outcome:
        """One try."""
        try:
            refusal = self._run.learn(self._exchange, shard)
            if refusal is not None:
                return outcome.of_answer(refusal)
            ready = self._run.ready(shard, self._halves)
            return Outcome("sent") if ready is None else self._post(ready)
        except OSError as error:
            found = outcome.of_failure(error)
            if found.in_vain:
                self._patience.in_vain()
            return found

    def _exchange(self, method: str, path: str, body: Buffers = (), media_type: str = JSON) -> Answer:
        """A request, waited for as long as those before it have taught."""
        return self._connection.exchange(method, path, body, media_type, self._patience.seconds, ANSWER_BYTES)

    def _post(self, shard: Shard) -> Outcome:
        body = shard.body(self._run.attempt)
        self._counters.add("sent_bytes", sum(memoryview(part).nbytes for part in body))
        begun = time.monotonic()
        answer = self._exchange("POST", f"{self._run.path}/batches{self._query}", body, MEDIA_TYPE)
        if self._query and answer.kind == UNKNOWN_PARAMETER:
            self._query = ""
            return Outcome("again", "detail", answer.detail)
        if self._run.outdated(answer):
            return Outcome("again", str(answer.status), answer.detail, most=outcome.OUTDATED_TRIES)
        if self._run.taken(answer, shard):
            return Outcome("again", "attempt", answer.detail, most=outcome.OUTDATED_TRIES)
        found = outcome.of_answer(answer)
        if found.stored and not found.duplicate:
            self._run.own = True
            self._patience.stored_after(time.monotonic() - begun)
        if found.stored:
            self._run.stored(shard)
            if self._on_stored is not None:
                self._on_stored(shard)
            self._change_run(shard)
        if found.kind == "sent":
            self._hand_over(answer)
        return found

    def _hand_over(self, answer: Answer) -> None:
        """The answer to whoever asked for answers: what goes wrong there is no trouble of the shard."""
        try:
            if self._on_answer is not None:
                self._on_answer(answer.document)
        except Exception as error:  # a boundary: the callback is the trainer's
            self._counters.tell("on_answer", f"{type(error).__name__}: {error}")

    def _whole(self, shard: Shard) -> Shard | None:
        """The shard with its first half, where that is still kept and not in it yet."""
        first = self._halves.find(shard.rollout) if shard.is_later_half else None
        return None if first is None else shard.joined(first)

    def _count(self, found: Outcome) -> None:
        if found.kind == "sent":
            self._counters.add("sent")
            self._counters.add("duplicates", int(found.duplicate))
        else:
            self._counters.refuse(found.reason, found.message)

    def _change_run(self, shard: Shard) -> None:
        """Set profile and labels of the run, after its first stored shard; a failure is tried again after the next."""
        changes = self._run.changes(shard)
        if not changes:
            return
        try:
            answer = self._exchange("PATCH", self._run.path, [json.dumps(changes).encode()])
        except OSError as error:
            self._counters.tell("run", f"profile and labels not set: {error}")
            return
        found = outcome.of_answer(answer)
        self._run.changed = found.kind != "again"
        if found.kind == "refused":
            self._counters.tell("run", f"profile and labels not set: {found.message}")
