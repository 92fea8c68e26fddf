"""Clients: each posts shard after shard on a connection that it keeps, until each is acknowledged.

One post in five comes twice, half of those at once on two connections; one in ten follows a body that breaks off.
What a client does is a matter of its seed. Knows HTTP and the ledger, and nothing of faults.
"""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random

from tests.chaos.contents import SHARDS, Key, body
from tests.chaos.ledger import Ledger

CLIENTS = 6
DOUBLED, ABORTED = 0.2, 0.1
#: Seconds: between posts, before a post is tried again, and for which an answer is waited.
PAUSE, AGAIN, PATIENCE = 0.02, 0.1, 30.0
#: Seconds that clients have to bring to an end what they have begun.
FINISH = 40.0


@dataclass
class Load:
    """Clients of one service, three to a run, one for each shard; `ahead` is how many steps one may be before others.

    What a service remembers of steps that lack shards grows with that.
    """

    port: int
    ledger: Ledger
    name: str = "r"
    clients: int = CLIENTS
    pause: float = PAUSE
    ahead: int = 1 << 30
    _steps: dict[int, int] = field(default_factory=dict)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _given_up: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self, finish: bool = True) -> Iterator[None]:
        """Inside, clients post; at the end each finishes the shard it is at, unless nothing is there to finish it."""
        threads = [threading.Thread(target=self._guarded, args=(n,), daemon=True) for n in range(self.clients)]
        for thread in threads:
            thread.start()
        try:
            yield
        except BaseException:
            self._given_up.set()
            raise
        finally:
            self._stopped.set()
            if not finish:
                self._given_up.set()
            for thread in threads:
                thread.join(FINISH)
            self._given_up.set()
        self.ledger.raise_defect()

    def _guarded(self, number: int) -> None:
        try:
            self._client(number)
        except Exception as error:
            self.ledger.defects.append(error)

    def _client(self, number: int) -> None:
        run, shard, random = f"{self.name}-{number // SHARDS}", number % SHARDS, Random(f"{self.name} {number}")
        client, other = Client(self.port, self.ledger), Client(self.port, self.ledger)
        step = 0
        while not self._stopped.is_set():
            key, how = Key(run, step, shard), random.random()
            if random.random() < ABORTED:
                client.abort(key, random)
            if how < DOUBLED / 2:
                self._both(client, other, key)
            if not self._until_acknowledged(client, key):
                break
            if DOUBLED / 2 < how < DOUBLED:
                client.post(key)
            step += 1
            self._keep_step(number, step)
        client.close()
        other.close()

    def _keep_step(self, number: int, step: int) -> None:
        """Pause, for as long as the others of the run are too far behind."""
        self._steps[number] = step
        first = number - number % SHARDS
        others = range(first, min(first + SHARDS, self.clients))
        time.sleep(self.pause)
        while step > min(self._steps.get(other, 0) for other in others) + self.ahead and not self._stopped.is_set():
            time.sleep(0.02)

    def _both(self, client: "Client", other: "Client", key: Key) -> None:
        for one in (client, other):
            one.begin(key)
        for one in (client, other):
            one.finish(key)

    def _until_acknowledged(self, client: "Client", key: Key) -> bool:
        while client.post(key) != 200:
            if self._given_up.wait(AGAIN):
                return False
        return True


class Client:
    """One connection that is kept, and made anew when it has ended. JSON is sent with so many spaces behind it."""

    def __init__(self, port: int, ledger: Ledger, padding: int = 0) -> None:
        self._port, self._ledger, self._padding = port, ledger, b" " * padding
        self._connection: http.client.HTTPConnection | None = None
        self._began = 0.0

    def post(self, key: Key) -> int | None:
        """The status, None where no answer came."""
        self.begin(key)
        return self.finish(key)

    def begin(self, key: Key) -> None:
        """Send a shard."""
        media_type, content = body(key)
        content += self._padding
        self._ledger.sent.add(key)
        self._began = time.monotonic()
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
            self._connection.request("POST", f"/v1/runs/{key.run}/batches", content, {"Content-Type": media_type})
        except (OSError, http.client.HTTPException) as error:
            self._lost(error)

    def finish(self, key: Key) -> int | None:
        """Take the answer, and put it into the ledger."""
        if self._connection is None:
            return None
        try:
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._lost(error)
            return None
        self._ledger.took(time.monotonic() - self._began)
        if answer.status == 200:
            self._ledger.acknowledge(key, json.loads(text)["duplicate"])
        else:
            self._ledger.refuse(answer.status, text.decode(errors="replace")[-300:], answer.headers["Retry-After"])
        if answer.will_close:
            self.close()
        return answer.status

    def abort(self, key: Key, random: Random) -> None:
        """Send a part of a shard on a connection of its own, and end that."""
        media_type, content = body(key)
        head = f"POST /v1/runs/{key.run}/batches HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {media_type}\r\n"
        whole = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), PATIENCE) as connection:
            connection.sendall(whole[: random.randrange(len(whole) - len(content), len(whole))])

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _lost(self, error: Exception) -> None:
        self._ledger.no_answer(type(error).__name__)
        self.close()
