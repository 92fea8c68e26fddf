"""Scrapes over real connections: many at once cost two documents, and readers that do not read cost no memory."""

import asyncio
import time
from typing import Any

import pytest
from offpolicy_monitor.exposition.counters import RunCounters
from offpolicy_monitor.exposition.formats import TEXT
from offpolicy_monitor.exposition.runs import RunExposition
from offpolicy_monitor.server.http.documents import MOST_DOCUMENTS, Document, DocumentResponse, Documents
from prometheus_client import CollectorRegistry

from tests.fixtures.application import JSON, Client, json_bytes


@pytest.fixture
def renders(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When each render of a service that is ready began."""
    began: list[float] = []
    deadline = time.monotonic() + 60
    while client.get("/readyz").status_code != 200:
        assert time.monotonic() < deadline, "the service does not become ready"
        time.sleep(0.05)
    render = RunExposition.render

    def counted(self: RunExposition, format: object) -> list[bytes]:
        began.append(time.monotonic())
        time.sleep(0.2)
        return render(self, format)  # pyrefly: ignore[bad-argument-type]

    monkeypatch.setattr(RunExposition, "render", counted)
    return began


def test_twenty_scrapes_at_once_are_two_documents(client: Client, renders: list[float]) -> None:
    client.post("/v1/runs/r/batches", content=json_bytes(), headers=JSON)

    async def all_at_once() -> list[str]:
        answers = await asyncio.gather(*(client.http.get("/metrics") for _ in range(20)))
        return [answer.text for answer in answers]

    texts = client.run(all_at_once())
    assert len(renders) <= 2
    assert all('offpolicy_step{run="r"} 7.0\n' in text for text in texts)


def test_a_scrape_shows_what_was_stored_before_it_began_though_another_was_under_way(
    client: Client, renders: list[float]
) -> None:
    async def play() -> str:
        early = asyncio.create_task(client.http.get("/metrics"))
        while not renders:
            await asyncio.sleep(0.01)
        await client.http.post("/v1/runs/r/batches", content=json_bytes(), headers=JSON)
        late = await client.http.get("/metrics")
        await early
        return late.text

    assert 'offpolicy_step{run="r"} 7.0\n' in client.run(play())


def test_a_document_is_sent_in_pieces_with_its_length_and_a_head_without_it(client: Client) -> None:
    answer = client.get("/metrics")
    assert int(answer.headers["content-length"]) == len(answer.content)
    head = client.request("HEAD", "/metrics")
    assert (head.status_code, head.content) == (200, b"")


def test_readers_of_one_document_have_no_copies_and_are_sent_a_piece_when_they_took_the_last() -> None:
    document = Document([b"one" * 1000, b"two" * 1000], "text/plain")

    async def play() -> list[bytes]:
        taken: list[bytes] = []
        may_take = asyncio.Semaphore(0)

        async def send(message: Any) -> None:
            await may_take.acquire()
            if message["type"] == "http.response.body" and message["body"]:
                taken.append(message["body"])

        async def receive() -> Any:
            await asyncio.Event().wait()

        sending = asyncio.create_task(DocumentResponse(document)({"type": "http"}, receive, send))
        may_take.release()
        may_take.release()
        await asyncio.sleep(0.01)
        assert len(taken) == 1
        for _ in range(3):
            may_take.release()
        await sending
        return taken

    taken = asyncio.run(play())
    assert [id(piece) for piece in taken] == [id(piece) for piece in document.read()]


def documents() -> Documents:
    return Documents(CollectorRegistry(), RunExposition(list, RunCounters(1)))


def test_slow_readers_hold_a_bounded_number_of_documents_and_a_scrape_is_always_answered() -> None:
    made = documents()
    held = [made.make(TEXT) for _ in range(3 * MOST_DOCUMENTS)]
    assert [document.dropped for document in held] == [True] * 2 * MOST_DOCUMENTS + [False] * MOST_DOCUMENTS
    assert sum(map(len, held[-1].read())) == int(held[-1].headers["Content-Length"])


def test_documents_that_were_read_count_no_more() -> None:
    made = documents()
    first = made.make(TEXT)
    for _ in range(2 * MOST_DOCUMENTS):
        made.make(TEXT)
    assert not first.dropped


def test_a_reader_whose_document_was_dropped_is_cut_off_and_told_nothing_false() -> None:
    document = Document([b"one", b"two"], "text/plain")
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)
        if message.get("body"):
            document.drop()

    async def receive() -> Any:
        raise AssertionError

    asyncio.run(DocumentResponse(document)({"type": "http"}, receive, send))
    assert [message.get("body") for message in sent] == [None, b"one"]
    assert sent[-1]["more_body"] is True
