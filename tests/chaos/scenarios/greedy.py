"""Clients that ask for as much as they may, all at once, around trainers that go on posting."""

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tests.chaos.contents import Key
from tests.chaos.load import PATIENCE, Client
from tests.chaos.scenario import SQLITE, Scenario
from tests.chaos.scenarios.crowd import ALONE, HEALTH_EVERY, SCRAPE_EVERY, asked, before_all_others
from tests.chaos.stage import PROGRAM, Stage
from tests.chaos.watch import MEBIBYTE

JSON: Final = {"Content-Type": "application/json"}
#: The budget of bodies, and the size of each of those that are posted at once.
BUDGET, SIZE = 64 * MEBIBYTE, 16 * MEBIBYTE
#: Seconds that all of those have to be acknowledged, and between two attempts.
STORED_WITHIN, AGAIN = 120.0, 0.5
#: MiB: what bodies, what they are parsed into, and answers may take together.
COSTS_LESS_THAN: Final = 768.0
#: Seconds: under which 99 in 100 answers come. A text of a million lists holds the interpreter for a tenth of a second.
HEALTH_WITHIN, SCRAPE_WITHIN = 0.5, 1.5
#: Thresholds times 200 steps are the most points of a what-if.
THRESHOLDS: Final = "&".join(f"threshold={1 + number / 250}" for number in range(250))
#: As many lists as a body may have, nested in each other and beside each other, and more.
NESTED: Final = b'{"step":1,"logprobs":' + b"[" * 999_999 + b"]" * 999_999 + b"}"
BESIDE: Final = b'{"step":1,"logprobs":[' + b"[]," * 999_990 + b"[]]}"
TOO_MANY: Final = b"[" * 2_000_000


@dataclass
class Greed:
    """What is asked again and again until `over`, and how it was answered."""

    port: int
    answers: Counter[int] = field(default_factory=Counter)
    over: threading.Event = field(default_factory=threading.Event)

    def ask(self, method: str, path: str, sent: bytes | None = None) -> None:
        """Ask once."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        headers: Mapping[str, str] = JSON if sent is not None else {}
        try:
            connection.request(method, path, sent, dict(headers))
            answer = connection.getresponse()
            answer.read()
            self.answers[answer.status] += 1
        except (OSError, http.client.HTTPException):
            self.answers[0] += 1
        finally:
            connection.close()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Inside, all of it is asked."""
        kinds: list[tuple[int, Callable[[], None]]] = [
            (8, partial(self.ask, "GET", f"/v1/runs/r-0/whatif?method=mask&{THRESHOLDS}")),
            (16, partial(self.ask, "GET", "/v1/runs/r-1/series?field=gaps.mismatch.k3")),
            *((2, partial(self.ask, "POST", "/v1/runs/g/batches", sent)) for sent in (NESTED, BESIDE, TOO_MANY)),
        ]
        threads = [
            threading.Thread(target=self._until_over, args=(kind,), daemon=True) for n, kind in kinds for _ in range(n)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.over.set()
            for thread in threads:
                thread.join(120)

    def _until_over(self, kind: Callable[[], None]) -> None:
        while not self.over.is_set():
            kind()


def greedy(stage: Stage) -> None:
    """So many large posts at once, beside what else is asked."""
    stage.start([*before_all_others(), *PROGRAM], {"OFFPOLICY_INFLIGHT_BYTES": str(BUDGET)})
    greed = Greed(stage.port)
    with stage.load(pause=0.1, ahead=4), stage.flat(COSTS_LESS_THAN):
        time.sleep(ALONE)
        health = asked(stage, "/healthz", HEALTH_EVERY, HEALTH_WITHIN)
        scrapes = asked(stage, "/metrics", SCRAPE_EVERY, SCRAPE_WITHIN)
        with health, scrapes, greed.going_on():
            post_at_once(stage, stage.times)
    stage.outcome.trials = stage.times
    stage.measured["asked beside"] = greed.answers.total()
    others = set(greed.answers) - {200, 400, 422, 503}
    stage.promise(not others, f"what asked for much was answered {dict(greed.answers)}")
    # A large post may wait for longer than its client does, which sends it again.
    stage.answered({200, 503}, unanswered=True)


def post_at_once(stage: Stage, number: int) -> None:
    """So many clients post one large shard each, until it is acknowledged."""
    deadline, keys = time.monotonic() + STORED_WITHIN, [Key(f"large-{client}", 0, 0) for client in range(number)]

    def post(key: Key) -> None:
        client = Client(stage.port, stage.ledger, padding=SIZE)
        while client.post(key) != 200 and time.monotonic() < deadline:
            time.sleep(AGAIN)
        client.close()

    threads = [threading.Thread(target=post, args=(key,), daemon=True) for key in keys]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(STORED_WITHIN + PATIENCE)
    stored = sum(key in stage.ledger.acknowledged for key in keys)
    stage.measured["large posts took (s)"] = round(time.monotonic() - began, 1)
    stage.promise(stored == number, f"{stored} of {number} large posts were acknowledged in {STORED_WITHIN:g} s")


SCENARIOS = (
    Scenario(
        "clients that ask for as much as they may",
        greedy,
        full=64,
        quick=8,
        limit=600,
        alone=True,
        quick_databases=(SQLITE,),
    ),
)
