"""What the background thread does with each kind of answer: sent again, given up, counted, said once."""

import itertools
import json
import logging
import socket
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor import Monitor
from offpolicy_monitor.client.connection import Answer, Connection
from offpolicy_monitor.client.mistakes import Lost, Mistake
from offpolicy_monitor.client.outcome import Outcome, Tries, of_answer
from offpolicy_monitor.errors import ConfigurationError

from tests.client.batches import batch, nbytes
from tests.client.conditions import standing_still
from tests.client.fakes import Fake, black_hole, endless, serving
from tests.fixtures.http_stub import Said, unused_url


def closed_stats(fake: Fake, steps: int = 1, at: int = 0, **options: Any) -> dict[str, Any]:
    """Log some steps from `at` on to a fake service, close, and give the stats."""
    with serving(fake):
        monitor = Monitor(fake.url, "r", **options)
        for step in range(at, at + steps):
            monitor.log(step=step, **batch())
        monitor.close()
    return dict(monitor.stats)


def counts(stats: dict[str, Any]) -> tuple[int, ...]:
    assert stats["logged"] == stats["sent"] + stats["pending"] + stats["dropped"] + stats["errors"]
    return tuple(stats[name] for name in ("sent", "dropped", "retries", "errors"))


def test_batches_arrive_in_order_with_their_envelope_and_arrays() -> None:
    fake = Fake()
    stats = closed_stats(fake, 3)
    assert counts(stats) == (3, 0, 0, 0) and stats["pending"] == stats["pending_bytes"] == 0
    assert fake.steps() == [0, 1, 2]
    frame = fake.frames()[2]
    assert frame.envelope == {"step": 2, "minibatch": 0, "shard": 0, "shards": 1, "attempt": 0}
    for name, array in batch().items():
        assert (frame.tensors[name].array == array).all() and frame.tensors[name].array.shape == array.shape
    post = fake.posts()[0]
    assert (post.path, post.headers["Content-Type"]) == (
        "/v1/runs/r/batches?detail=none",
        "application/vnd.safetensors",
    )
    assert stats["sent_bytes"] == sum(len(asked.body) for asked in fake.posts())


def test_every_field_of_the_envelope_is_sent() -> None:
    fake = Fake()
    with serving(fake), Monitor(fake.url, "r", attempt=3) as monitor:
        monitor.log(
            step=int(np.int64(7)), minibatch=1, minibatches=4, shard=2, shards=8, policy_version=-1, rollout="x",
            labels={"engine": "vllm", "replica": 3}, sequence_ids=range(4), **batch(),
        )  # fmt: skip
    assert fake.frames()[0].envelope == {
        "step": 7, "minibatch": 1, "minibatches": 4, "shard": 2, "shards": 8, "policy_version": -1, "rollout": "x",
        "labels": {"engine": "vllm", "replica": "3"}, "sequence_ids": ["0", "1", "2", "3"], "attempt": 3,
    }  # fmt: skip


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 507])
def test_a_temporary_refusal_is_sent_again_until_it_is_taken(status: int) -> None:
    fake = Fake([Said(status), Said(status)])
    assert counts(closed_stats(fake, 2)) == (2, 0, 2, 0)
    assert fake.steps() == [0, 0, 0, 1]


@pytest.mark.parametrize("status", [301, 400, 404, 409, 413, 415, 422])
def test_a_lasting_refusal_is_counted_and_not_sent_again(status: int) -> None:
    fake = Fake([Said(status, {"detail": "no such thing"})])
    stats = closed_stats(fake, 2)
    assert counts(stats) == (1, 0, 0, 1) and stats["errors_by"] == {str(status): 1}
    assert stats["last_error"] == f"{status} no such thing"
    assert fake.steps() == [0, 1]


@pytest.mark.parametrize("status", [401, 403])
def test_a_token_that_is_known_soon_loses_nothing_and_one_that_never_is_is_not_tried_for_ever(status: int) -> None:
    fake = Fake([Said(status, {"detail": "no token"})] * 2)
    stats = closed_stats(fake, 2)
    assert counts(stats) == (2, 0, 2, 0) and fake.steps() == [0, 0, 0, 1]
    assert stats["last_error"] == f"{status} no token; set OFFPOLICY_TOKEN; trying again"
    found, tries = of_answer(Answer(status, None, {})), Tries()
    assert found.shut_out and [tries.again(found) for _ in range(8)] == [True] * 6 + [False] * 2


def test_what_went_wrong_is_logged_once_a_kind(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "offpolicy_monitor"):
        closed_stats(Fake(rest=Said(422, {"detail": "step: must be more"})), 5)
    assert [record.getMessage() for record in caplog.records] == [
        "422: 422 step: must be more (said once; monitor.stats counts)"
    ]


def test_a_defect_of_the_service_is_not_tried_for_ever() -> None:
    fake = Fake([Said(500, {"type": "urn:offpolicy-monitor:problem:internal"})] * 5)
    assert counts(closed_stats(fake, 2, timeout=5.0)) == (1, 0, 4, 1)
    assert fake.steps() == [0] * 5 + [1]


@pytest.mark.parametrize("answer", [Answer(500, None, {}), Answer(500, None, {"type": "about:blank"})])
def test_what_a_proxy_answers_for_a_service_that_is_not_there_is_tried_again_for_as_long_as_that_lasts(
    answer: Answer,
) -> None:
    found, tries = of_answer(answer), Tries()
    assert all(tries.again(found) for _ in range(1000))


def test_retry_after_is_waited_for() -> None:
    fake = Fake([Said(503, headers={"Retry-After": "1"})])
    closed_stats(fake)
    first, second = (asked.at for asked in fake.posts())
    assert 1.0 <= second - first < 10.0


def test_a_connection_that_breaks_is_opened_again() -> None:
    fake = Fake([Said(cut=True), Said(), Said(cut=True)])
    assert counts(closed_stats(fake, 3)) == (3, 0, 2, 0)
    assert fake.steps() == [0, 0, 1, 1, 2]


def test_an_answer_that_takes_too_long_is_given_up_and_asked_for_again() -> None:
    fake = Fake([Said(delay=1.0)])
    assert counts(closed_stats(fake, 1, timeout=0.2)) == (1, 0, 1, 0)


def test_a_service_that_needs_longer_than_the_timeout_is_waited_for_in_the_end() -> None:
    fake = Fake(rest=Said(delay=1.0))
    assert counts(closed_stats(fake, 2, timeout=0.3)) == (2, 0, 2, 0)
    assert fake.steps() == [0, 0, 0, 1]


def test_closing_breaks_off_a_wait_that_has_grown() -> None:
    with black_hole() as url:
        monitor = Monitor(url, "r", timeout=0.1)
        monitor.log(step=0, **batch())
        while monitor.stats["retries"] < 5:  # the next answer is waited for for 3.2 s
            time.sleep(0.01)
        began = time.monotonic()
        monitor.close(deadline=0.2)
        monitor._sender.join(5.0)
        assert time.monotonic() - began < 2.5
    assert monitor.stats["dropped_by"] == {"deadline": 1}


def test_nothing_is_sent_on_a_connection_that_was_given_up() -> None:
    fake = Fake()
    with serving(fake):
        connection = Connection(fake.url, 5.0, None)
        assert connection.exchange("GET", "/v1/runs").status == 404
        connection.abort()
        with pytest.raises(ConnectionAbortedError):
            connection.exchange("GET", "/v1/runs")
    assert len(fake.asked) == 1


def test_a_connection_that_is_closed_just_now_is_given_up_all_the_same() -> None:
    """Whoever closes a monitor gives up what its thread waits for, which may have closed that a moment ago."""
    ours, theirs = socket.socketpair()

    class Closing:
        socks = iter([ours, None])
        sock = property(lambda self: next(self.socks))

    with ours, theirs:
        connection = Connection("http://127.0.0.1:1", 5.0, None)
        connection._connection = Closing()  # pyrefly: ignore[bad-assignment]
        connection.abort()
        assert theirs.recv(1) == b""


def test_a_service_that_stands_still_is_noticed_and_gets_its_batches_when_it_goes_on() -> None:
    with standing_still() as (url, go_on):
        monitor = Monitor(url, "r", timeout=0.2, attempt=0)
        for step in range(3):
            monitor.log(step=step, **batch())
        while not monitor.stats["retries"]:
            time.sleep(0.01)
        assert "TimeoutError" in str(monitor.stats["last_error"]) and monitor.stats["sent"] == 0
        go_on()
        assert monitor.flush(30.0)
        monitor.close()
    assert monitor.stats["sent"] == 3


@pytest.mark.parametrize(("piece", "pause"), [(b"x" * (1 << 20), 0.0), (b"x", 0.05)], ids=["flood", "drip"])
def test_an_answer_without_end_is_given_up_before_it_fills_the_memory_or_the_time(piece: bytes, pause: float) -> None:
    with endless(piece, pause) as (url, sent):
        monitor = Monitor(url, "r", timeout=0.5, attempt=0)
        monitor.log(step=0, **batch())
        began = time.monotonic()
        while monitor.stats["retries"] < 2:
            assert time.monotonic() - began < 20.0
            time.sleep(0.01)
        monitor.close(0.1)
    assert monitor.stats["dropped_by"] == {"deadline": 1}
    # Sixteen that are read, and what the system takes from the sender before it knows that nobody reads on.
    assert max(sent) < 64 << 20


def test_an_answer_that_is_cut_off_is_asked_for_again() -> None:
    fake = Fake([Said(headers={"Content-Length": "500"}, cut_off=True)])
    assert counts(closed_stats(fake, 2, attempt=0)) == (2, 0, 1, 0)
    assert fake.steps() == [0, 0, 1]


def test_a_defect_after_many_waits_is_the_first_defect() -> None:
    tries, busy, defect = Tries(), Outcome("again", "503"), Outcome("again", "500", most=5)
    assert all(tries.again(busy) for _ in range(50))
    assert [tries.again(defect) for _ in range(5)] == [True] * 4 + [False]
    assert not Tries().again(Outcome("sent")) and not Tries().again(Outcome("refused", "422"))


def test_a_duplicate_is_sent_and_said_to_be_one() -> None:
    stats = closed_stats(Fake(rest=Said(200, {"duplicate": True, "stored": True})), 2)
    assert counts(stats) == (2, 0, 0, 0) and stats["duplicates"] == 2


def test_profile_and_labels_are_set_once_after_the_first_stored_batch() -> None:
    fake = Fake([Said(422), Said(200, {"stored": False})])
    closed_stats(fake, 5, profile="moe_bf16", labels={"gpu": "h100", "nodes": 4})
    assert [asked.method for asked in fake.asked] == ["GET", "POST", "POST", "POST", "PATCH", "POST", "POST", "PATCH"]
    patch = fake.asked[4]
    assert (patch.path, patch.headers["Content-Type"]) == ("/v1/runs/r", "application/json")
    assert json.loads(patch.body) == {"profile": "moe_bf16", "labels": {"gpu": "h100", "nodes": "4"}}


def test_a_token_is_a_bearer_in_every_request() -> None:
    fake = Fake()
    closed_stats(fake, 1, token="secret", profile="moe_bf16")
    assert [asked.headers["Authorization"] for asked in fake.asked] == ["Bearer secret"] * 4


def test_a_path_in_the_address_stands_before_every_path() -> None:
    fake = Fake()
    with serving(fake), Monitor(f"{fake.url}/monitor/", "r") as monitor:
        monitor.log(step=0, **batch())
    assert fake.posts()[0].path == "/monitor/v1/runs/r/batches?detail=none"


@pytest.mark.parametrize(
    ("run", "step", "attempt"),
    [
        (None, 0, 0),
        ({"last_step": 4, "attempt": 1}, 5, 1),
        ({"last_step": 4, "attempt": 1}, 4, 1),
        ({"last_step": 4, "attempt": 1}, 3, 2),
    ],
)
def test_a_run_of_one_shard_asks_once_which_attempt_it_is(run: dict[str, int] | None, step: int, attempt: int) -> None:
    fake = Fake(run=run)
    with serving(fake), Monitor(fake.url, "r") as monitor:
        monitor.log(step=step, **batch())
        monitor.log(step=step + 1, **batch())
    assert [frame.envelope["attempt"] for frame in fake.frames()] == [attempt] * 2
    assert [asked.method for asked in fake.asked[:-1]] == ["GET", "POST", "POST"]


def conflict(kind: str = "shard-conflict") -> Said:
    return Said(409, {"type": f"urn:offpolicy-monitor:problem:{kind}", "detail": kind})


@pytest.mark.parametrize("kind", ["shard-conflict", "shards-disagree", "step-settled"])
def test_a_last_step_that_the_service_has_with_other_content_begins_a_new_attempt_once(kind: str) -> None:
    fake = Fake([conflict(kind), Said(), conflict(kind)], run={"last_step": 4, "attempt": 1})
    stats = closed_stats(fake, 2, at=4)
    assert counts(stats) == (1, 0, 1, 1) and stats["errors_by"] == {"409": 1}
    assert [frame.envelope["attempt"] for frame in fake.frames()] == [1, 2, 2]
    assert [asked.method for asked in fake.asked[:-1]] == ["GET", "POST", "GET", "POST", "POST"]


def test_an_attempt_that_was_given_is_never_changed() -> None:
    fake = Fake([conflict()], run={"last_step": 4, "attempt": 1})
    assert counts(closed_stats(fake, 2, at=4, attempt=1)) == (1, 0, 0, 1)
    assert [frame.envelope["attempt"] for frame in fake.frames()] == [1, 1]


def test_a_service_that_says_conflict_for_ever_is_given_up() -> None:
    fake = Fake([conflict()] * 5, run={"last_step": 4, "attempt": 1})
    assert counts(closed_stats(fake, 2, at=4)) == (1, 0, 4, 1)


def test_a_run_of_many_shards_does_not_ask() -> None:
    fake = Fake(run={"last_step": 4, "attempt": 1})
    with serving(fake), Monitor(fake.url, "r") as monitor:
        monitor.log(step=0, shard=0, shards=2, **batch())
    assert [asked.method for asked in fake.asked[:-1]] == ["POST"] and fake.frames()[0].envelope["attempt"] == 0


def test_a_mistake_in_the_arguments_is_counted_and_nothing_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    fake = Fake()
    with serving(fake):
        monitor = Monitor(fake.url, "r")
        good = batch()
        mistakes: tuple[dict[str, Any], ...] = (
            {"step": -1}, {"step": 1.5}, {"step": 0, "shard": 2}, {"step": 0, "minibatch": 3, "minibatches": 3},
            {"step": 0, "mask": np.ones(3)}, {"step": 0, "logprob": good["logprobs"]}, {"step": 0, "rewards": [1.0]},
        )  # fmt: skip
        for wrong in mistakes:
            monitor.log(**good | wrong)
            monitor.log(**good | wrong)
        monitor.close()
    assert counts(dict(monitor.stats)) == (0, 0, 0, 14)
    kinds = {"step": 4, "shard": 2, "minibatch": 2, "rank": 0, "shape": 2, "unknown-array": 2, "sequences": 2}
    assert monitor.stats["errors_by"] == {kind: count for kind, count in kinds.items() if count}
    assert len(caplog.records) == 6 and not fake.asked


def test_strict_raises_mistakes_at_once_and_losses_with_the_next_call() -> None:
    fake = Fake([Said(422, {"detail": "advantages: not finite"})])
    with serving(fake):
        monitor = Monitor(fake.url, "r", strict=True)
        with pytest.raises(Mistake, match="unknown: logprob;"):
            monitor.log(step=0, logprob=[1.0])
        monitor.log(step=0, **batch())
        with pytest.raises(Lost, match="422 advantages: not finite"):
            monitor.flush()
        monitor.log(step=1, **batch())
        assert monitor.flush()
        monitor.close()


def test_a_full_queue_drops_the_oldest_and_counts_them() -> None:
    size = nbytes(batch(64, 64))
    with black_hole() as url:
        monitor = Monitor(url, "r", queue_bytes=3 * size + size // 2, timeout=0.2)
        for step in range(8):
            monitor.log(step=step, **batch(64, 64))
            assert monitor.stats["pending_bytes"] <= 3 * size + size // 2
        monitor.log(step=8, **batch(128, 128))
        stats = dict(monitor.stats)
        began = time.monotonic()
        monitor.close(deadline=0.5)
        assert time.monotonic() - began < 10.0
    assert (stats["pending"], stats["dropped_by"]) == (3, {"queue_full": 5, "too_large": 1})
    assert monitor.stats["dropped_by"] == {"queue_full": 5, "too_large": 1, "deadline": 3}
    assert counts(dict(monitor.stats)) == (0, 9, monitor.stats["retries"], 0)


def test_after_close_a_batch_is_dropped_and_counted() -> None:
    monitor = Monitor(unused_url(), "r")
    monitor.close()
    monitor.log(step=0, **batch())
    assert monitor.stats["dropped_by"] == {"closed": 1}


def test_flush_says_whether_everything_was_sent() -> None:
    with black_hole() as url:
        monitor = Monitor(url, "r", timeout=5.0)
        monitor.log(step=0, **batch())
        assert monitor.flush(0.05) is False
        monitor.close(0.05)
    assert monitor.flush(0.0) is True


@pytest.mark.parametrize(
    ("url", "run", "said"),
    [
        (None, "r", "set OFFPOLICY_URL"),
        ("127.0.0.1:8900", "r", "is no address"),
        ("http://host:port", "r", "is no address"),
        ("http://host", None, "set OFFPOLICY_RUN"),
        ("http://host", "a b", "is no name of a run"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_set_up(
    url: str | None, run: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OFFPOLICY_URL", raising=False)
    monkeypatch.delenv("OFFPOLICY_RUN", raising=False)
    with pytest.raises(ConfigurationError, match=said):
        Monitor(url, run)


def test_address_run_and_token_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake()
    with serving(fake):
        for name, value in (("URL", fake.url), ("RUN", "from-env"), ("TOKEN", "t"), ("ATTEMPT", "6")):
            monkeypatch.setenv(f"OFFPOLICY_{name}", value)
        with Monitor() as monitor:
            monitor.log(step=0, **batch())
    post = fake.posts()[0]
    assert (post.path, post.headers["Authorization"]) == ("/v1/runs/from-env/batches?detail=none", "Bearer t")
    assert fake.frames()[0].envelope["attempt"] == 6


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    with serving(Fake()) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("http://", "http://user:pass@"))
        monkeypatch.setenv("no_proxy", "")
        yield proxy


def test_a_proxy_is_used_for_other_machines_and_never_for_this_one(proxied: Fake) -> None:
    direct = Fake()
    with serving(direct), Monitor(direct.url, "r") as here, Monitor("http://monitor.invalid:8900", "r") as there:
        here.log(step=0, **batch())
        there.log(step=1, **batch())
    assert (direct.steps(), proxied.steps()) == ([0], [1])
    post = proxied.posts()[0]
    assert post.path == "http://monitor.invalid:8900/v1/runs/r/batches?detail=none"
    assert post.headers["Proxy-Authorization"] == "Basic dXNlcjpwYXNz"


def test_the_trainer_may_overwrite_its_arrays_at_once() -> None:
    fake, arrays = Fake(), batch()
    with serving(fake), Monitor(fake.url, "r") as monitor:
        for step in itertools.islice(itertools.count(), 4):
            arrays["logprobs"][:] = -step
            monitor.log(step=step, **arrays)
        arrays["logprobs"][:] = np.nan
    assert [frame.tensors["logprobs"].array.max() for frame in fake.frames()] == [0.0, -1.0, -2.0, -3.0]
