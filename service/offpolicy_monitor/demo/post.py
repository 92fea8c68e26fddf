"""Poster: sends messages from a background thread, and never blocks or raises into training.

What does not fit its bounded queue is dropped, the oldest first; what fails is counted and the last reason kept. It
knows the service's paths and the figures it answers with, and nothing of how messages come about.
"""

import json
import threading
from collections import deque
from collections.abc import Mapping

from offpolicy_monitor.demo.endpoint import Endpoint
from offpolicy_monitor.demo.message import Message
from offpolicy_monitor.wire.frame import MEDIA_TYPE, encode


class Poster:
    """Counts of messages: `acknowledged` (2xx), `failed`, `dropped`; `last_error`; `latest` figures by gap."""

    def __init__(self, endpoint: Endpoint, run: str, profile: str, capacity: int) -> None:
        self.endpoint, self.path, self.profile, self.capacity = endpoint, f"/v1/runs/{run}", profile, capacity
        self.acknowledged = self.failed = self.dropped = 0
        self.last_error: str | None = None
        self.latest: dict[str, float] = {}
        self.sums: dict[str, tuple[float, int]] = {}
        self.profiled = self.closed = False
        self.pending: deque[Message] = deque()
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self._run, name="demo-poster", daemon=True)
        self.thread.start()

    def submit(self, message: Message) -> None:
        """Queue one message; returns at once."""
        with self.changed:
            if len(self.pending) == self.capacity:
                self.pending.popleft()
                self.dropped += 1
            self.pending.append(message)
            self.changed.notify()

    def close(self, deadline: float = 10.0) -> None:
        """Send what is queued, for at most `deadline` seconds; the rest is dropped and counted."""
        with self.changed:
            self.closed = True
            self.changed.notify()
        self.thread.join(deadline)
        with self.changed:
            self.dropped += len(self.pending)
            self.pending.clear()

    def mean(self, gap: str) -> float | None:
        """Mean k3 (nats) of a gap over the answers that had it; None where none had."""
        total, count = self.sums.get(gap, (0.0, 0))
        return total / count if count else None

    def _run(self) -> None:
        while (message := self._next()) is not None:
            try:
                self._read(self._send(message))
                self._send_profile()
            except Exception as error:  # the thread's boundary: whatever went wrong, training goes on
                self.failed += 1
                self.last_error = str(error) or type(error).__name__
        self.endpoint.close()

    def _next(self) -> Message | None:
        with self.changed:
            self.changed.wait_for(lambda: self.pending or self.closed)
            return self.pending.popleft() if self.pending else None

    def _send(self, message: Message) -> Mapping[str, object]:
        body = encode(message.envelope, message.arrays)
        return self.endpoint.request("POST", f"{self.path}/batches", body, MEDIA_TYPE)

    def _read(self, answer: Mapping[str, object]) -> None:
        self.acknowledged += 1
        gaps = answer.get("gaps")
        for gap, figures in gaps.items() if isinstance(gaps, dict) else ():
            k3 = figures.get("k3") if isinstance(figures, dict) else None
            if isinstance(k3, int | float):
                total, count = self.sums.get(gap, (0.0, 0))
                self.latest[gap], self.sums[gap] = k3, (total + k3, count + 1)

    def _send_profile(self) -> None:
        if not self.profiled:
            self.profiled = True  # once, whatever comes of it: a run without a profile has the default one
            self.endpoint.request("PATCH", self.path, [json.dumps({"profile": self.profile}).encode()])
