"""SIGTERM under load: what is in flight is answered, and the process ends in time."""

import http.client
import os
import signal
import socket
import time

from tests.chaos.contents import Key, body
from tests.chaos.scenario import Scenario
from tests.chaos.stage import Busy, Stage

END_WITHIN = 20.0
#: Requests whose bodies are on their way when the end is told, and seconds until the rest of them comes.
IN_FLIGHT, REST_AFTER = 8, 1.5


def terminations(stage: Stage) -> None:
    """Requests that are half sent at the signal are completed after it, and answered 200."""
    for number in stage.trials():
        stage.start()
        busy = Busy()
        with stage.load(finish=False):
            time.sleep(1.0)
            keys = [Key(f"in-flight-{number}", step, 0) for step in range(IN_FLIGHT)]
            halves = [half_sent(stage, key) for key in keys]
            time.sleep(0.5)
            assert stage.process is not None
            began = time.monotonic()
            os.kill(stage.process.pid, signal.SIGTERM)
            time.sleep(REST_AFTER)
            for key, (connection, rest) in zip(keys, halves, strict=True):
                answer_of(stage, key, connection, rest)
            status = stage.process.wait(3 * END_WITHIN)
            ended(stage, status, time.monotonic() - began, END_WITHIN * busy.times())
            stage.process = None
    stage.answered({200, 503}, unanswered=True)


def ended(stage: Stage, status: int, took: float, within: float) -> None:
    """The end of the service, so many seconds after the signal."""
    stage.promise(status == 0 and took < within, f"it ended with {status} after {took:.1f} s")
    stage.most("end took, s", took)


def half_sent(stage: Stage, key: Key) -> tuple[socket.socket, bytes]:
    """A connection with a request of which half the body was sent, and the rest."""
    media_type, content = body(key)
    head = f"POST /v1/runs/{key.run}/batches HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {media_type}\r\n"
    connection = stage.stack.enter_context(socket.create_connection(("127.0.0.1", stage.port), 30))
    connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content[: len(content) // 2])
    stage.ledger.sent.add(key)
    return connection, content[len(content) // 2 :]


def answer_of(stage: Stage, key: Key, connection: socket.socket, rest: bytes) -> None:
    try:
        connection.sendall(rest)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        text = answer.read().decode()
    except (OSError, http.client.HTTPException) as error:
        return stage.promise(False, f"a request in flight got no answer: {error!r}")
    stage.promise(answer.status == 200, f"a request in flight was answered {answer.status}: {text[:200]}")
    if answer.status == 200:
        stage.ledger.acknowledge(key, '"duplicate":true' in text)


SCENARIOS = (Scenario("SIGTERM under load", terminations, full=5),)
