"""Events: what this service has stored and changed, told at once to everyone who listens, as server-sent events.

What a transaction settled tells it, after its commit; nobody's listening asks the database anything. Who does not take
what is sent is dropped, and nobody waits for him. Workers tell each other, where anybody listens to another. Knows
receipts; knows no SQL and no HTTP but the form of a frame.
"""

import asyncio
import secrets
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from offpolicy_monitor.errors import Refusal, Unavailable
from offpolicy_monitor.server.workers.siblings import NoSiblings, Siblings
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import Receipt, ShardRecord

#: Events that wait for one listener; whoever has more has fallen behind.
MOST_WAITING: Final = 256
#: Events that one who comes back is sent again, and seconds for which they are collected with nobody listening.
MOST_KEPT: Final = 1024
COLLECTED_FOR: Final = 60.0
#: Runs whose alerts are known, of which the one that was told of longest ago goes first.
MOST_RUNS: Final = 1024
#: Seconds of silence after which a comment shows that the connection lives, and after which a client comes back, ms.
HEARTBEAT_SECONDS: Final = 15.0
RETRY_MS: Final = 2000
HEARTBEAT: Final = b": alive\n\n"
NOBODY: Final = NoSiblings()
#: To whoever missed something: read anew.
RESET: Final = b"event: reset\ndata: {}\n\n"


#: Of a stored shard: run, step, minibatch, whether the step is merged, the verdict, and what is told of alerts.
Told = tuple[str, int, int, bool, str, Sequence[Mapping[str, Any]]]
_OF_ALERTS: Final = ("id", "alert", "severity", "since_step", "state")


def _plain(run: str, step: int, minibatch: int, receipt: Receipt) -> Told:
    alerts = [{name: row[name] for name in _OF_ALERTS} for row in receipt.alerts]
    return run, step, minibatch, receipt.step_completed, receipt.verdict, alerts


@dataclass(frozen=True)
class Event:
    """One event: its number, the run that it is of (None: any), and its frame."""

    number: int
    run: str | None
    frame: bytes


@dataclass(eq=False)
class _Listener:
    run: str | None
    sees: Callable[[str], bool]
    stands: Callable[[], bool]
    queue: "asyncio.Queue[bytes | None]" = field(default_factory=lambda: asyncio.Queue(MOST_WAITING + 1))

    def wants(self, event: Event) -> bool:
        return event.run is None or (self.run in (None, event.run) and self.sees(event.run))

    def end(self) -> None:
        """Let it send nothing more."""
        while not self.queue.empty():
            self.queue.get_nowait()
        self.queue.put_nowait(None)


class Events:
    """Made inside a running event loop. `stored` and `changed` may be called by any thread, the others on the loop.

    `most` listen at once. With nobody listening nothing is made.
    """

    def __init__(self, most: int, siblings: Siblings = NOBODY) -> None:
        self._loop, self._most, self._siblings = asyncio.get_running_loop(), most, siblings
        self._listeners: set[_Listener] = set()
        self._collecting = self._closed = False
        self._rest: asyncio.TimerHandle | None = None
        self._begin()

    def stored(self, records: Sequence[ShardRecord], answers: Sequence[Receipt | Refusal]) -> None:
        """A transaction has committed these; refused ones and duplicates have changed nothing."""
        if self._wanted():
            told = [
                _plain(record.key.run, record.key.step, record.key.minibatch, answer)
                for record, answer in zip(records, answers, strict=True)
                if isinstance(answer, Receipt) and not answer.duplicate
            ]
            self._later(told)

    def merged(self, run: str, step: int, minibatch: int, receipt: Receipt) -> None:
        """A step that was merged beside the writer has been kept."""
        if self._wanted():
            self._later([_plain(run, step, minibatch, receipt)])

    def changed(self, run: str | None, deleted: bool = False) -> None:
        """A run was changed or deleted; None: some runs were."""
        if self._collecting:
            self._call(self._changed, run, deleted)
        if self._siblings.others_listen():
            self._siblings.tell("changed", [run, deleted])

    def told_elsewhere(self, told: Told) -> None:
        """A sibling has stored a shard."""
        if self._collecting:
            self._told([told])

    def changed_elsewhere(self, run: str | None, deleted: bool) -> None:
        """A sibling has changed a run or deleted it."""
        if self._collecting:
            self._changed(run, deleted)

    def lost(self) -> None:
        """What a sibling told was lost: whoever listens here reads anew."""
        self._kept.clear()
        for listener in list(self._listeners):
            self._send_frame(listener, RESET)

    async def listen(
        self,
        run: str | None,
        last_id: str | None,
        sees: Callable[[str], bool] = lambda run: True,
        stands: Callable[[], bool] = lambda: True,
    ) -> AsyncGenerator[bytes, None]:
        """Frames of events, of one run or of all, from the one after `last_id` on, where that is still known.

        Of runs that the listener `sees` alone; `dismiss` ends it where it does not stand any more. Raises Unavailable
        where as many listen as may, or the service is stopping.
        """
        listener = self._enter(_Listener(run, sees, stands), last_id)
        return self._frames(listener)

    def dismiss(self) -> None:
        """End the streams of those who may not listen any more."""
        for listener in [one for one in self._listeners if not one.stands()]:
            self._listeners.discard(listener)
            listener.end()

    def close(self) -> None:
        """End every stream at once, and begin no other."""
        self._closed = True
        for listener in self._listeners:
            listener.end()
        self._listeners.clear()
        if self._rest is not None:
            self._rest.cancel()

    async def _frames(self, listener: _Listener) -> AsyncGenerator[bytes, None]:
        try:
            yield b"retry: %d\n\n" % RETRY_MS
            while True:
                try:
                    frame = await asyncio.wait_for(listener.queue.get(), HEARTBEAT_SECONDS)
                except TimeoutError:
                    frame = HEARTBEAT
                if frame is None:
                    return
                yield frame
        finally:
            self._leave(listener)

    def _enter(self, listener: _Listener, last_id: str | None) -> _Listener:
        if self._closed:
            raise Unavailable(503, "stopping", "the service is stopping", retry_after=2)
        if len(self._listeners) >= self._most:
            raise Unavailable(
                503,
                "too-many-listeners",
                f"all {self._most} streams of events are taken; raise {Settings.variable('max_listeners')} for more",
                retry_after=15,
            )
        self._collect(True)
        if self._rest is not None:
            self._rest.cancel()
        missed = self._since(last_id)
        if missed is None:
            listener.queue.put_nowait(RESET)
        else:
            for event in missed:
                self._send(listener, event)
        self._listeners.add(listener)
        return listener

    def _leave(self, listener: _Listener) -> None:
        self._listeners.discard(listener)
        if not self._listeners and not self._closed:
            self._rest = self._loop.call_later(COLLECTED_FOR, self._begin)

    def _begin(self) -> None:
        """Nothing is known; ids of before are none of ours any more."""
        if self._listeners:
            return
        self._collect(False)
        self._epoch, self._number = secrets.token_hex(4), 0
        self._kept: deque[Event] = deque(maxlen=MOST_KEPT)
        self._alerts: OrderedDict[str, Mapping[str, Mapping[str, Any]]] = OrderedDict()

    def _since(self, last_id: str | None) -> list[Event] | None:
        """The events after an id; None where some of them are not known any more."""
        if last_id is None:
            return []
        epoch, _, number = last_id.partition("-")
        first = self._number - len(self._kept)
        if epoch != self._epoch or not number.isdecimal() or not first <= int(number) <= self._number:
            return None
        return [event for event in self._kept if event.number > int(number)][-MOST_WAITING:]

    def _collect(self, collecting: bool) -> None:
        self._collecting = collecting
        self._siblings.listens(collecting)

    def _wanted(self) -> bool:
        return self._collecting or self._siblings.others_listen()

    def _later(self, told: list[Told]) -> None:
        if told and self._collecting:
            self._call(self._told, told)
        if self._siblings.others_listen():
            for one in told:
                self._siblings.tell("told", one)

    def _call(self, work: Any, *values: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(work, *values)

    def _told(self, told: Sequence[Told]) -> None:
        for run, step, minibatch, completed, verdict, alerts in told:
            if run not in self._alerts:
                self._publish("run", run, {"run": run})
            if completed:
                where = {"run": run, "step": step, "minibatch": minibatch}
                self._publish("step", run, {**where, "verdict": verdict})
            self._compare(run, {row["alert"]: row for row in alerts})

    def _compare(self, run: str, now: Mapping[str, Mapping[str, Any]]) -> None:
        """Tell of the rules whose alert is not what it was: another state or severity, or over."""
        before = self._alerts.pop(run, {})
        self._alerts[run] = now
        while len(self._alerts) > MOST_RUNS:
            self._alerts.popitem(last=False)
        for name, row in now.items():
            if _known(before.get(name)) != _known(row):
                self._alert(run, row, row["state"])
        for name in before.keys() - now.keys():
            self._alert(run, before[name], "resolved" if before[name]["state"] == "active" else "dropped")

    def _alert(self, run: str, row: Mapping[str, Any], state: str) -> None:
        told = {name: row[name] for name in ("id", "alert", "severity", "since_step")}
        self._publish("alert", run, {"run": run, **told, "state": state})

    def _changed(self, run: str | None, deleted: bool) -> None:
        if deleted and run is not None:
            self._alerts.pop(run, None)
        self._publish("run", run, {"run": run, "deleted": True} if deleted else {"run": run})

    def _publish(self, kind: str, run: str | None, data: Mapping[str, Any]) -> None:
        self._number += 1
        frame = b"id: %s-%d\nevent: %s\ndata: %s\n\n"
        frame %= (self._epoch.encode(), self._number, kind.encode(), orjson.dumps(data))
        event = Event(self._number, run, frame)
        self._kept.append(event)
        for listener in list(self._listeners):
            self._send(listener, event)

    def _send(self, listener: _Listener, event: Event) -> None:
        """Drop a listener that has fallen behind: it comes back and is told what it missed, or to read anew."""
        if listener.wants(event):
            self._send_frame(listener, event.frame)

    def _send_frame(self, listener: _Listener, frame: bytes) -> None:
        if listener.queue.qsize() >= MOST_WAITING:
            self._listeners.discard(listener)
            listener.end()
        else:
            listener.queue.put_nowait(frame)


def _known(row: Mapping[str, Any] | None) -> tuple[Any, ...] | None:
    return None if row is None else (row["id"], row["severity"], row["state"])
