"""Monitor: what a trainer holds. `log` copies and queues; everything else happens on a thread in the background.

It is where the parts of the client are put together, and the boundary that nothing passes: whatever goes wrong is
counted in `stats`, said once in the log, and raised only where `strict` asks for it. What it answers is in `inquiry`.
"""

import atexit
import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from offpolicy_monitor.client import run_end
from offpolicy_monitor.client.arrays import bfloat16, values_of
from offpolicy_monitor.client.attempt import declared
from offpolicy_monitor.client.config import Config, settled
from offpolicy_monitor.client.connection import Connection
from offpolicy_monitor.client.counters import Counters
from offpolicy_monitor.client.halves import Halves
from offpolicy_monitor.client.inquiry import Inquiry
from offpolicy_monitor.client.mistakes import Lost, Mistake
from offpolicy_monitor.client.patience import Patience
from offpolicy_monitor.client.queue import ByteQueue
from offpolicy_monitor.client.run import Run
from offpolicy_monitor.client.sender import Sender
from offpolicy_monitor.client.shard import Shard, make_envelope
from offpolicy_monitor.client.values import Value, copies

if TYPE_CHECKING:
    from offpolicy_monitor.client.loggers.follow import Follower

QUEUE_BYTES = 256 << 20


class Settles(Protocol):
    """What gathers arrays that are not logged yet."""

    def settle(self) -> object:
        """The run ends: log what is complete."""
        ...


class Monitor(Inquiry):
    """Sends the log-probs of a training run to a service, and never blocks or breaks the run.

    url           of the service; None: OFFPOLICY_URL
    run           name of the run; None: OFFPOLICY_RUN
    profile       what is normal for the run (dense_bf16, moe_bf16 ...), and `labels` of it: set once, when shard 0's
                  first batch is stored
    attempt       restart epoch; None: OFFPOLICY_ATTEMPT, a scheduler's count of restarts, or (a run of one shard) one
                  more than the service has where the run's steps begin anew; a copy keeps what was found out
    queue_bytes   bound on what waits to be sent; as much again for first halves of rollouts
    timeout       seconds without progress after which a request is given up and sent again; doubled each time, up to
                  120, until a batch is stored
    token         sent as `Authorization: Bearer`; None: OFFPOLICY_TOKEN
    strict        raise what would be counted: for tests
    reduce        send mergeable summaries instead of tokens; needs torch
    on_answer     called with the service's answer to each batch that it took, on the thread in the background, before
                  the batch counts as sent; what it raises is said once in the log. A pickled copy has none
    log_to        a W&B run, a SummaryWriter, (MlflowClient(), run_id), mlflow.active_run() or a function of step,
                  figures and verdict: given each step's headline figures and verdict, in order, on a thread of its
                  own, by the monitor that posts shard 0. A copy, forked or pickled, has none
    log_as        a framework ("verl", "TRL" ...) by whose names figures are logged where it has any
    for_run       this process posts nothing, as a driver whose workers post: `log_to` gets all that the run gets

    Raises ConfigurationError for a missing or wrong address, run or attempt, and nothing later on. Usable from several
    threads, after fork (with an empty queue) and after pickling; as a context manager it closes itself.
    """

    def __init__(
        self,
        url: str | None = None,
        run: str | None = None,
        *,
        profile: str | None = None,
        labels: Mapping[str, object] | None = None,
        attempt: int | None = None,
        queue_bytes: int = QUEUE_BYTES,
        timeout: float = 10.0,
        token: str | None = None,
        strict: bool = False,
        reduce: bool = False,
        on_answer: Callable[[Mapping[str, Any]], None] | None = None,
        log_to: Any = None,
        log_as: str | None = None,
        for_run: bool = False,
    ) -> None:
        given = Config(url or "", run or "", profile, labels, attempt, queue_bytes, timeout, token, strict, reduce)
        self._config = settled(given, os.environ)
        self._on_answer = on_answer
        self._follower: Follower | None = None
        self._begin(declared(os.environ) if attempt is None else attempt)
        if log_to is not None:
            self._follow(log_to, log_as, for_run)
        self._uncaught_before = run_end.uncaught()
        run_end.watch()
        atexit.register(self._at_exit)
        _monitors.add(self)

    def _begin(self, attempt: int | None, carried: int | None = None) -> None:
        """Empty queue, zero counts, no thread yet; `carried`: the attempt that another monitor has found out."""
        config = self._config
        self._closed = False
        self._gathering: weakref.WeakSet[Settles] = weakref.WeakSet()
        self._surfaced = 0
        self._counters = Counters()
        self._halves = Halves(config.queue_bytes)
        self._queue: ByteQueue[Shard] = ByteQueue(config.queue_bytes, self._overflowed)
        self._connection = self._connect()
        self._run = Run(config.run, attempt, config.settings, config.reduce, carried)
        patience = Patience(config.timeout)
        self._follower = None
        self._sender = Sender(
            self._connection, self._run, self._queue, self._halves, self._counters, patience, self._on_answer,
            self._stored,
        )  # fmt: skip

    def log(
        self,
        *,
        step: int,
        minibatch: int = 0,
        minibatches: int | None = None,
        shard: int = 0,
        shards: int = 1,
        policy_version: int | None = None,
        rollout: str | None = None,
        labels: Mapping[str, object] | None = None,
        sequence_ids: Sequence[object] | None = None,
        **arrays: Any,
    ) -> None:
        """Queue one shard of one gradient step; returns after one copy of the arrays.

        `arrays` by the names of the contract: sampling_logprobs, old_logprobs, logprobs, engine_logprobs,
        old_logprobs_repeat, old_support_logprobs, support_logprobs, mask, lengths, advantages, policy_versions,
        rewards, group_ids, turns, entropy, sampling_experts, old_experts, experts. Each a tensor on any device, a
        numpy array or a list: [T] with lengths, [S, L] with mask, or S rows; None counts as not given.
        With `rollout` and without `logprobs` it is the first half of a shard; with `logprobs` and neither of the other
        two, the later half. With `strict` raises Mistake for arguments the service would refuse, Lost for what was
        lost since the last call.
        """
        fields = {
            "step": step,
            "minibatch": minibatch,
            "minibatches": minibatches,
            "shard": shard,
            "shards": shards,
            "policy_version": policy_version,
            "rollout": rollout,
        }
        self._counters.add("logged")
        try:
            envelope = make_envelope(fields, labels, sequence_ids)
            self._queued(envelope, values_of(arrays, rollout is not None))
        except Exception as error:  # the boundary to training
            kind = error.kind if isinstance(error, Mistake) else type(error).__name__
            self._counters.refuse(kind, str(error) or kind)
            if self._config.strict:
                self._surfaced += 1
                raise
        self._surface()

    @property
    def strict(self) -> bool:
        """Whether what goes wrong is raised: adapters then raise their own mistakes too."""
        return self._config.strict

    @property
    def stats(self) -> Mapping[str, Any]:
        """What became of the batches: logged = sent + pending + dropped + errors, once nothing is on the move.

        pending (waiting or being sent), pending_bytes, sent (acknowledged; `duplicates` of them were there already),
        dropped and dropped_by reason, errors and errors_by kind or status, retries, sent_bytes (bodies, repeated ones
        too), last_error.
        """
        return {**self._counters.read(), "pending": len(self._queue), "pending_bytes": self._queue.used}

    def flush(self, deadline: float = 10.0) -> bool:
        """Wait until everything is sent or given up, at most `deadline` seconds; whether it is."""
        empty = self._queue.wait_empty(deadline)
        self._surface()
        return empty

    def before_end(self, gathering: Settles) -> None:
        """Have `gathering` log what it still holds when `finish` or `close` begins; it is not kept alive by this."""
        self._gathering.add(gathering)

    def finish(self, deadline: float = 10.0, *, for_run: bool = False) -> bool:
        """Send what is queued, then say that the run has ended, in at most `deadline` seconds; whether that is said.

        It is then over for the service: no alert stays, and its silence is none. The monitor that sent shard 0 speaks
        for the run, any other one says nothing and answers False; but `for_run` says it all the same, for a driver
        that knows the end of training and whose workers post. A batch of a later step opens the run again.
        """
        end = time.monotonic() + deadline
        self._settle()
        if not self.flush(deadline):
            return False
        if self._follower is not None:
            self._follower.settle((end - time.monotonic()) / 2)
        return self._say_finished(end, for_run)

    def close(self, deadline: float = 10.0, finished: bool | None = None) -> None:
        """Send what is queued, for at most `deadline` seconds; the rest is dropped and counted. Called at exit.

        Then the run has ended, as `finish` says it, unless this is called while an exception is under way or, at exit,
        after one that nobody caught: that is a crash, of which the run's silence tells. `finished` says which it is;
        False too where the run goes on elsewhere.
        """
        atexit.unregister(self._at_exit)
        end = time.monotonic() + deadline
        self._settle()
        self._closed = True
        self._queue.close()
        self._sender.join(deadline)
        left = self._queue.clear()
        if self._follower is not None:
            self._follower.close((end - time.monotonic()) / 2)
        if left:
            self._counters.drop("deadline", f"{left} batches were not sent within {deadline:g} s of closing", left)
            self._connection.abort()
        elif run_end.is_normal(sys.exc_info()[1]) if finished is None else finished:
            self._say_finished(end)
        self._surface()

    def __enter__(self) -> "Monitor":
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        self.close(finished=run_end.is_normal(error))

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._config, self._run.learned_attempt)

    def _settle(self) -> None:
        for gathering in list(self._gathering):
            gathering.settle()

    def _at_exit(self) -> None:
        self.close(finished=run_end.process_ends_well(self._uncaught_before))

    def _say_finished(self, end: float, for_run: bool = False) -> bool:
        """Until `end`, by the clock that only goes forward; once, until another batch is stored."""
        run, seconds = self._run, end - time.monotonic()
        if (run.speaks or for_run) and not run.finished and seconds > 0:
            with closing(
                Connection(self._config.url, min(self._config.timeout, seconds), self._config.token)
            ) as service:
                run.finished = run_end.say(service, run.path, seconds, self._not_said)
        return run.finished

    def _not_said(self, trouble: str) -> None:
        self._counters.tell("finish", f"the service does not know that the run has ended: {trouble}")

    def _queued(self, envelope: dict[str, Any], values: Mapping[str, Value]) -> None:
        """Copy into room reserved beforehand, and leave the rest to the thread."""
        size = sum(value.nbytes for value in values.values()) + sum(map(len, envelope.get("sequence_ids", ())))
        if self._closed:
            self._counters.drop("closed", "logged after close")
            return
        self._sender.start()
        if not self._queue.reserve(size):
            reason = "too_large" if size > self._config.queue_bytes else "queue_full"
            self._counters.drop(reason, f"{size} bytes do not fit queue_bytes={self._config.queue_bytes}")
            return
        try:
            copied, wait = copies(values)
        except BaseException:
            self._queue.release(size)
            raise
        shard = Shard(envelope, copied, bfloat16(values), size, wait, _device(values))
        if shard.is_first_half and shard.rollout is not None:
            self._halves.keep(shard.rollout, shard)
        self._queue.put(shard, size)

    def _follow(self, target: Any, framework: str | None, for_run: bool) -> None:
        """From now on in this process. Raises ConfigurationError for what is no logger, or no framework."""
        from offpolicy_monitor.client.loggers import follow, kinds, names  # wanted by those who give one

        logger, known = kinds.logger_of(target), names.of_framework(framework)
        tell = partial(self._counters.tell, "log_to")
        self._follower = follow.Follower(self._connect(), self._run.path, logger, known, tell, for_run)

    def _stored(self, shard: Shard) -> None:
        """Of the shards of a step one is told to the follower, whoever posts the others."""
        if self._follower is not None and not shard.envelope["shard"]:
            self._follower.stored(shard.envelope["step"])

    def _overflowed(self, count: int) -> None:
        message = f"the queue of {self._config.queue_bytes} bytes is full; the oldest batches are dropped"
        self._counters.drop("queue_full", message, count)

    def _connect(self) -> Connection:
        return Connection(self._config.url, self._config.timeout, self._config.token)

    def _surface(self) -> None:
        """With `strict`, raise once what the background has lost."""
        if not self._config.strict:
            return
        stats = self._counters.read()
        lost = stats["dropped"] + stats["errors"]
        if lost > self._surfaced:
            self._surfaced = lost
            raise Lost(str(stats["last_error"]))


def _device(values: Mapping[str, Value]) -> str:
    """The device of the log-probs that are on one, else the CPU."""
    there = (str(value.parts[0].device) for name, value in values.items() if value.on_device and "logprobs" in name)
    return next(there, "cpu")


def _again(config: Config, carried: int | None) -> Monitor:
    """A monitor of the same settings, in the process that unpickles it; restarts that this one counts come first."""
    monitor = Monitor(
        config.url, config.run, profile=config.profile, labels=config.labels, attempt=config.attempt,
        queue_bytes=config.queue_bytes, timeout=config.timeout, token=config.token, strict=config.strict,
        reduce=config.reduce,
    )  # fmt: skip
    monitor._begin(monitor._run.given_attempt, carried)
    return monitor


_monitors: "weakref.WeakSet[Monitor]" = weakref.WeakSet()


def _after_fork() -> None:
    """In the child: the parent's queue is the parent's, its thread and its connection are not here."""
    for monitor in list(_monitors):
        monitor._connection.leave_to_parent()
        monitor._begin(monitor._run.given_attempt, monitor._run.learned_attempt)


os.register_at_fork(after_in_child=_after_fork)
