"""Poster: posts one record and returns when the service has stored it, whatever it takes meanwhile.

Shares the trainer's connection, its outcomes and its back-off; unlike the trainer it waits for the service, for a dump
does not run away. It knows no files.
"""

import json
import time
from collections.abc import Callable, Iterable
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

import numpy as np

from offpolicy_monitor.client import backoff, outcome
from offpolicy_monitor.client.connection import JSON, Connection
from offpolicy_monitor.client.files.record import Record
from offpolicy_monitor.client.patience import Patience
from offpolicy_monitor.errors import ConfigurationError, FieldError, OffpolicyMonitorError, Refusal, Unavailable
from offpolicy_monitor.wire.frame import MEDIA_TYPE, encode

TIMEOUT = 60.0  # seconds for a piece of a body or the answer


class Poster:
    """Posts to one run; `say` is told of waiting; after `patience` seconds of waiting it gives up (None: never)."""

    def __init__(
        self, url: str, run: str, token: str | None, patience: float | None, say: Callable[[str], None]
    ) -> None:
        self.connection, self.wait = Connection(url, TIMEOUT, token), Patience(TIMEOUT)
        self.url, self.path, self.patience, self.say = url, f"/v1/runs/{quote(run, safe='')}/batches", patience, say

    def post(self, record: Record, attempt: int | None) -> bool:
        """Whether the service had it already. Raises Refusal where it is refused, Unavailable where patience ends."""
        media_type, body = body_of(record, attempt)
        begun, failures, said, tries = time.monotonic(), 0, "", outcome.Tries()
        while tries.again(found := self._tried(body, media_type)) and found.kind == "again" and not found.shut_out:
            failures += 1
            if self.patience is not None and time.monotonic() - begun >= self.patience:
                break
            if said != found.message:
                said = found.message
                self.say(f"waiting for {self.url}: {found.message}")
            time.sleep(backoff.delay(failures, found.retry_after))
        if said and found.kind == "sent":
            self.say(f"{self.url} answers again")
        return self._judged(found)

    def _tried(self, body: Iterable[bytes | memoryview], media_type: str) -> outcome.Outcome:
        try:
            return outcome.of_answer(self.connection.exchange("POST", self.path, body, media_type, self.wait.seconds))
        except (OSError, HTTPException) as error:
            found = outcome.of_failure(error)
            if found.in_vain:
                self.wait.in_vain()
            return found

    def _judged(self, found: outcome.Outcome) -> bool:
        if found.kind == "sent":
            return found.duplicate
        if found.shut_out:
            raise ConfigurationError(found.message)
        if found.kind == "again":
            raise Unavailable(503, "unavailable", f"no luck with {self.url}: {found.message}")
        raise Refusal(int(found.reason), "refused", found.message, [FieldError("body", found.message)])

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def body_of(record: Record, attempt: int | None) -> tuple[str, list[bytes | memoryview]]:
    """Media type and body of a record; `attempt` replaces the one it names. Lists go as JSON, arrays as a frame."""
    envelope: dict[str, Any] = dict(record.envelope) if attempt is None else {**record.envelope, "attempt": attempt}
    if not any(isinstance(array, np.ndarray) for array in record.arrays.values()):
        return JSON, [json.dumps({**envelope, **record.arrays}).encode()]
    try:
        return MEDIA_TYPE, encode(envelope, record.arrays, record.bfloat16)
    except (TypeError, ValueError, OffpolicyMonitorError) as error:
        raise Refusal(422, "refused", str(error)) from error
