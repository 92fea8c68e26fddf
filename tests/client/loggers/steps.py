"""A service that knows some steps of one run, as `GET .../steps?detail=headline` answers them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fixtures.http_stub import Asked, Said, answering


def row(step: int, verdict: str | None = "accept", attempt: int = 0, **figures: Any) -> dict[str, Any]:
    """A step's row."""
    place = {"step": step, "minibatch": 0, "attempt": attempt, "received_shards": 2, "shards": 2, "complete": True}
    said: dict[str, Any] = {"received_at": "2026-11-22T09:35:07.490Z", "verdict": verdict, "alerts": []}
    return {**place, "policy_version": None, **said, "gaps": {}, "methods": {}, **figures}


@dataclass
class Steps:
    """Takes every batch, and answers the rows in the range that is asked for."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    refusal: Said | None = None
    last_step: int | None = None
    url: str = ""
    asked: list[str] = field(default_factory=list)

    def answer(self, asked: Asked) -> Said:
        place, query = urlsplit(asked.path).path, parse_qs(urlsplit(asked.path).query)
        if asked.method != "GET" or place == "/healthz":
            return Said()
        if not place.endswith("/steps"):
            return Said(404) if self.last_step is None else Said(200, {"last_step": self.last_step, "attempt": 0})
        self.asked.append(asked.path)
        first, last = int(query["from"][0]), int(query.get("to", ["1000000"])[0])
        found = [row for row in self.rows if first <= row["step"] <= last]
        return self.refusal or Said(200, {"steps": found[: int(query["limit"][0])], "next_cursor": None})


@contextmanager
def knowing(steps: Steps) -> Iterator[Steps]:
    """The service on a port of its own."""
    with answering(steps.answer) as steps.url:
        yield steps
