"""A receiver of webhooks on a real port, which can refuse, be slow, or be away, and keeps what it was sent."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.fixtures.http_stub import Asked, Said, answering
from tests.fixtures.prometheus import PATIENCE


@dataclass(frozen=True)
class Received(Asked):
    """A request with the status that it was answered with."""

    status: int = 200


@dataclass
class Receiver:
    """What to answer next, and what came. `statuses` are used up one per request; then it is 200."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    received: list[Received] = field(default_factory=list)
    taken: list[Any] = field(default_factory=list)
    free: threading.Event = field(default_factory=threading.Event)

    def answer(self, asked: Asked) -> Said:
        self.free.wait()
        status = self.statuses.pop(0) if self.statuses else 200
        self.received.append(Received(**vars(asked), status=status))
        if status >= 300:
            return Said(status, headers=self.headers)
        self.taken.append(asked.json)
        return Said(status)

    def wait_for(self, taken: int, within: float = PATIENCE) -> list[Any]:
        """The bodies that were answered with success, once there are as many."""
        eventually(lambda: len(self.taken) >= taken, within)
        return self.taken


def eventually(true: Any, within: float = PATIENCE) -> None:
    """Return when it is true; fail where it does not become so in time."""
    deadline = time.monotonic() + within
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@contextmanager
def receiving(receiver: Receiver | None = None, port: int = 0, hanging: bool = False) -> Iterator[Receiver]:
    """Listen until the end of the block; `hanging` answers nothing before that."""
    found = receiver or Receiver()
    if not hanging:
        found.free.set()
    with answering(found.answer, port) as url:
        found.url = f"{url}/hook"
        try:
            yield found
        finally:
            found.free.set()
