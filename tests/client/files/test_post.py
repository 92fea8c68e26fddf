import pytest
from offpolicy_monitor.client.files.post import Poster
from offpolicy_monitor.client.files.record import Record
from offpolicy_monitor.errors import ConfigurationError, Refusal

from tests.client.fakes import Fake, serving
from tests.fixtures.http_stub import Said

RECORD = Record("a.jsonl:1", {"step": 3}, {"logprobs": [-0.5], "old_logprobs": [-0.25]}, 10)


def test_a_busy_or_vanishing_service_is_asked_again_and_said_once() -> None:
    notes: list[str] = []
    full = Said(503, {"detail": "full"})
    with serving(Fake([full, full, Said(cut=True)])) as fake:
        poster = Poster(fake.url, "r1", None, None, notes.append)
        assert poster.post(RECORD, None) is False
        poster.close()
    assert [post.body for post in fake.posts()] == [b'{"step": 3, "logprobs": [-0.5], "old_logprobs": [-0.25]}'] * 4
    assert notes[0] == f"waiting for {fake.url}: 503 full"
    assert notes[-1] == f"{fake.url} answers again"
    assert len(notes) == 3


def test_a_duplicate_is_told_and_the_attempt_replaced() -> None:
    with serving(Fake([Said(200, {"duplicate": True})])) as fake:
        poster = Poster(fake.url, "r1", None, None, print)
        assert poster.post(RECORD, 2) is True
        poster.close()
    assert b'"attempt": 2' in fake.posts()[0].body


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (422, Refusal, "422 logprobs: too short"),
        (409, Refusal, "409 logprobs: too short"),
        (401, ConfigurationError, "set OFFPOLICY_TOKEN"),
    ],
)
def test_a_refusal_is_not_asked_again(status: int, error: type[Exception], message: str) -> None:
    with serving(Fake([Said(status, {"detail": "logprobs: too short"})])) as fake:
        poster = Poster(fake.url, "r1", None, None, print)
        with pytest.raises(error, match=message):
            poster.post(RECORD, None)
        poster.close()
    assert len(fake.posts()) == 1
