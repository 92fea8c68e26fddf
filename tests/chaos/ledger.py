"""The ledger: what clients sent, what was acknowledged, and how every other request was answered.

Shared by the threads of all clients. Knows nothing of the database.
"""

from collections import Counter
from dataclasses import dataclass, field
from threading import Lock

from tests.chaos.contents import Key, digest


@dataclass
class Ledger:
    """`sent` has every key whose body may have arrived; `acknowledged` the digests of those answered 200.

    `firsts` counts the answers to a key that said it was no duplicate; `defects` are what ended clients.
    """

    sent: set[Key] = field(default_factory=set)
    acknowledged: dict[Key, bytes] = field(default_factory=dict)
    firsts: Counter[Key] = field(default_factory=Counter)
    answers: Counter[int] = field(default_factory=Counter)
    unanswered: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    without_retry_after: int = 0
    slowest: float = 0.0
    defects: list[Exception] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def acknowledge(self, key: Key, duplicate: bool) -> None:
        """A 200."""
        found = self.acknowledged.get(key) or digest(key)
        with self._lock:
            self.answers[200] += 1
            self.acknowledged[key] = found
            self.firsts[key] += not duplicate

    def refuse(self, status: int, problem: str, retry_after: str | None) -> None:
        """An answer other than 200."""
        with self._lock:
            self.answers[status] += 1
            self.problems[problem] += 1
            self.without_retry_after += status in (429, 503) and retry_after is None

    def no_answer(self, why: str) -> None:
        """A request whose connection ended before its answer came."""
        with self._lock:
            self.unanswered[why] += 1

    def raise_defect(self) -> None:
        """Raise what ended a client, if anything did."""
        if self.defects:
            raise self.defects[0]

    def took(self, seconds: float) -> None:
        """How long an answer took."""
        with self._lock:
            self.slowest = max(self.slowest, seconds)
