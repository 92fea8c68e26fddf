"""What a target needs of the rest of the service: alerts and what was told, clocks, a way to post, a counter.

Every one is a seam: tests bring their own. Knows no target.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

#: An alert's row: the fields of `GET /v1/alerts` with `started_at`, `active_at`, `resolved_at` in unix seconds.
Alert = Mapping[str, Any]

Outcome = Literal["sent", "failed", "refused"]
TARGETS: Final = ("webhook", "alertmanager")
OUTCOMES: Final[tuple[Outcome, ...]] = ("sent", "failed", "refused")


class AlertSource(Protocol):
    """Where alerts come from, and where it is kept what the webhook has been told."""

    def untold(self, limit: int) -> Sequence[Alert]:
        """Alerts whose state, active or resolved, the webhook has not been told, oldest first; none for which another
        one speaks.
        """

    def mark_told(self, alert_id: int, state: str) -> None:
        """Keep that the webhook was told this state, or refused to be."""

    def firing(self, resolved_since: float) -> Sequence[Alert]:
        """Active alerts, and those that were active and have been resolved since that time; none that never spoke for
        itself.
        """

    def message(self, alert: Alert) -> str | None:
        """What an alert says to people, which takes some reading; None where nothing is known but its figures."""


@dataclass(frozen=True)
class Post:
    """One POST: where to, and the exact bytes."""

    url: str
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Reply:
    """What came of a post. `status` is None where no answer came; `reason` says why in words.

    `retry_after`: seconds that the receiver asks to be left alone, or None.
    """

    status: int | None
    reason: str = ""
    retry_after: float | None = None

    @property
    def outcome(self) -> Outcome:
        """`refused` is an answer: the same post would get it again.

        What lies with the receiver or with a login may be mended, and so may a redirect, which is not followed.
        """
        if self.status is None or self.status in (401, 403, 407, 408, 425, 429) or self.status >= 500:
            return "failed"
        if 200 <= self.status < 300:
            return "sent"
        return "refused" if self.status >= 400 else "failed"


@dataclass(frozen=True)
class Ports:
    """The world of a target.

    `clock` answers unix seconds, for what is told; `elapsed` seconds that only go forward, for when to try again: a
    clock that is set back must not put that off.
    """

    source: AlertSource
    send: Callable[[Post], Reply]
    clock: Callable[[], float]
    elapsed: Callable[[], float]
    count: Callable[[str, Outcome], None]


class Target(Protocol):
    """Someone to be told. `kind` is one of TARGETS."""

    kind: str

    def deliver(self, ports: Ports) -> float:
        """Send what is due; answers in how many seconds to call again if nothing happens before."""
