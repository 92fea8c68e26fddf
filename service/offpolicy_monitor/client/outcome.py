"""Outcome: what an answer, or none, means for the shard that was posted.

Knows statuses of the contract and which of them are worth another try. Knows no threads and no queue.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from offpolicy_monitor.client.connection import Answer

Kind = Literal["sent", "again", "gone", "refused"]
ALWAYS = 1 << 62

# 4xx that another try may mend, by themselves or with time.
TEMPORARY = (408, 425, 429)
ROLLOUT_GONE = 410
# A defect of the service, which says so in a document. Another try may meet a mended one, but a shard must not
# stand before all others for good. Any other 500 is of what stands between, as 502: Ray's proxy has no other answer
# where a replica has died, or none is there.
DEFECT, DEFECT_KIND, DEFECT_TRIES = 500, "internal", 5
# Rows of methods that change with every shard, or steps that others take every time, are somebody else's trouble.
OUTDATED_TRIES = 5
# Who is not let in may be within seconds: services notice new tokens by and by.
NO_ENTRY, ENTRY_TRIES = (401, 403), 7
# A body that breaks the connection each time (a proxy's limit, for one) would stand there for good as well.
BROKEN_ATTEMPTS = 20


@dataclass(frozen=True)
class Outcome:
    """What to do: count as sent, post again (at most `most` times for this), post whole, or count as refused."""

    kind: Kind
    reason: str = ""
    message: str = ""
    retry_after: str | None = None
    most: int = ALWAYS
    duplicate: bool = False
    stored: bool = False
    in_vain: bool = False  # nothing came while the client was waiting

    @property
    def shut_out(self) -> bool:
        """The token is missing, or is not for this."""
        return self.reason in map(str, NO_ENTRY)


class Tries:
    """How often a shard met which trouble: one defect after many waits is the first defect."""

    def __init__(self) -> None:
        self._met: Counter[tuple[str, int]] = Counter()

    def again(self, found: Outcome) -> bool:
        """Whether to post again after this."""
        trouble = (found.reason, found.most)
        self._met[trouble] += 1
        return found.kind in ("again", "gone") and self._met[trouble] < found.most


def of_answer(answer: Answer) -> Outcome:
    """The outcome of an answer."""
    status, said = answer.status, answer.document
    if 200 <= status < 300:
        return Outcome("sent", duplicate=said.get("duplicate") is True, stored=said.get("stored", True) is True)
    if status == ROLLOUT_GONE:
        return Outcome("gone", "410", answer.detail)
    if status in NO_ENTRY:
        return Outcome("again", str(status), f"{answer.detail}; set OFFPOLICY_TOKEN", most=ENTRY_TRIES)
    if status in TEMPORARY or status >= 500:
        most = DEFECT_TRIES if (status, answer.kind) == (DEFECT, DEFECT_KIND) else ALWAYS
        return Outcome("again", str(status), answer.detail, answer.retry_after, most)
    return Outcome("refused", str(status), answer.detail)


def of_failure(error: Exception) -> Outcome:
    """The outcome of a connection that failed, before or after the body was sent."""
    message = f"{type(error).__name__}: {error}".rstrip(": ")
    broken = isinstance(error, BrokenPipeError | ConnectionResetError)
    most = BROKEN_ATTEMPTS if broken else ALWAYS
    return Outcome("again", "connection", message, None, most, in_vain=isinstance(error, TimeoutError))
