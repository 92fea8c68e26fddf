import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from offpolicy_monitor.client.files.post import Poster
from offpolicy_monitor.client.files.record import Record
from offpolicy_monitor.errors import ConfigurationError, Refusal

RECORD = Record("a.jsonl:1", {"step": 3}, {"logprobs": [-0.5], "old_logprobs": [-0.25]}, 10)


@contextmanager
def answering(*answers: tuple[int, str]) -> Iterator[tuple[str, list[bytes]]]:
    """A service that gives these answers one after the other (status 0: none, it hangs up); its URL and what it got."""
    left, bodies = list(answers), []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            status, text = left.pop(0)
            if status:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", bodies
        finally:
            server.shutdown()
            thread.join()


def test_a_busy_or_vanishing_service_is_asked_again_and_said_once() -> None:
    notes: list[str] = []
    with answering((503, '{"detail": "full"}'), (503, '{"detail": "full"}'), (0, ""), (200, "{}")) as (url, bodies):
        poster = Poster(url, "r1", None, None, notes.append)
        assert poster.post(RECORD, None) is False
        poster.close()
    assert bodies == [b'{"step": 3, "logprobs": [-0.5], "old_logprobs": [-0.25]}'] * 4
    assert notes[0] == f"waiting for {url}: 503 full"
    assert notes[-1] == f"{url} answers again"
    assert len(notes) == 3


def test_a_duplicate_is_told_and_the_attempt_replaced() -> None:
    with answering((200, '{"duplicate": true}')) as (url, bodies):
        poster = Poster(url, "r1", None, None, print)
        assert poster.post(RECORD, 2) is True
        poster.close()
    assert b'"attempt": 2' in bodies[0]


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (422, Refusal, "422 logprobs: too short"),
        (409, Refusal, "409 logprobs: too short"),
        (401, ConfigurationError, "set OFFPOLICY_TOKEN"),
    ],
)
def test_a_refusal_is_not_asked_again(status: int, error: type[Exception], message: str) -> None:
    with answering((status, '{"detail": "logprobs: too short"}')) as (url, bodies):
        poster = Poster(url, "r1", None, None, print)
        with pytest.raises(error, match=message):
            poster.post(RECORD, None)
        poster.close()
    assert len(bodies) == 1
