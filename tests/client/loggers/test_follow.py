"""Each step reaches a logger once, in order and with its verdict, and nothing that goes wrong there harms a trainer."""

import os
import pickle
import threading
import time
from collections.abc import Mapping

import pytest
from offpolicy_monitor import Monitor
from offpolicy_monitor.client.connection import Connection
from offpolicy_monitor.client.loggers import follow
from offpolicy_monitor.client.loggers.kinds import Function
from offpolicy_monitor.errors import ConfigurationError

from tests.client.batches import batch
from tests.client.loggers.steps import Steps, knowing, row
from tests.fixtures.http_stub import Said

Seen = list[tuple[int, str | None]]


class Keeps:
    """A function to log to, which keeps what it is given."""

    def __init__(self) -> None:
        self.steps: Seen = []
        self.figures: list[Mapping[str, float]] = []

    def __call__(self, step: int, figures: Mapping[str, float], verdict: str | None) -> None:
        self.steps.append((step, verdict))
        self.figures.append(figures)


def test_a_real_service_gives_each_step_once_in_order_with_the_figures_of_its_merge(url: str) -> None:
    """Two ranks, each given a function: the one that posts shard 0 alone logs, whichever closes a step."""
    mine, others = Keeps(), Keeps()
    ranks = [Monitor(url, "ranks", log_to=seen) for seen in (mine, others)]
    for step in range(3):
        for shard in (1, 0) if step % 2 else (0, 1):
            ranks[shard].log(step=step, shard=shard, shards=2, **batch(seed=shard))
            assert ranks[shard].flush()
    for rank in reversed(ranks):
        rank.close()
    merged = ranks[0].series(["verdict", "gaps.mismatch.k3"])
    assert mine.steps == list(zip(range(3), merged["verdict"]["value"], strict=True))
    assert others.steps == []
    assert [figures["offpolicy/tokens"] for figures in mine.figures] == [64.0] * 3
    assert [figures["offpolicy/gaps.mismatch.k3"] for figures in mine.figures] == (
        merged["gaps.mismatch.k3"]["value"].tolist()
    )


def test_a_driver_whose_workers_post_logs_what_the_run_gets_from_now_on(url: str) -> None:
    seen = Keeps()
    with Monitor(url, "driven") as worker:
        worker.log(step=0, **batch())
        assert worker.flush()
        with Monitor(url, "driven", log_to=seen, for_run=True) as driver:
            while driver._follower is not None and driver._follower._next is None:
                time.sleep(0.01)
            for step in (1, 2):
                worker.log(step=step, **batch())
            assert worker.flush()
    assert [step for step, _ in seen.steps] == [1, 2]


def test_figures_have_the_names_that_a_framework_gives_them_whether_they_are_headlines_or_not(url: str) -> None:
    seen = Keeps()
    with Monitor(url, "verl", log_to=seen, log_as="verl") as monitor:
        monitor.log(step=0, minibatches=1, **batch())
    paths = ["gaps.mismatch.k1", "gaps.mismatch.sequence.perplexity_ratio", "gaps.mismatch.log_ratio_max"]
    ours = monitor.series(paths)
    k1, ratio, largest = (float(ours[path]["value"][0]) for path in paths)
    [figures] = seen.figures
    assert (figures["rollout_corr/kl"], figures["rollout_corr/rollout_rs_token_k1_mean"]) == (k1, k1)
    assert figures["rollout_corr/ppl_ratio"] == ratio
    assert figures["rollout_corr/rollout_rs_token_k1_min"] == -largest
    assert "offpolicy/gaps.mismatch.k1" not in figures and "offpolicy/gaps.staleness.k1" in figures


def test_a_step_waits_for_its_verdict_and_those_before_it_do_not_wait_for_ever() -> None:
    with knowing(Steps([row(0), row(1, None), row(2, "warn"), row(3, None)])) as service:
        seen = Keeps()
        monitor = Monitor(service.url, "r", log_to=seen)
        for step in range(4):
            monitor.log(step=step, **batch())
        monitor.close(deadline=0.5)
        assert seen.steps == [(0, "accept"), (1, None), (2, "warn")]
        assert "offpolicy/verdict" not in seen.figures[1]


def test_a_resumed_trainer_does_not_log_what_the_attempt_before_it_left() -> None:
    left = [row(step, attempt=0) for step in range(7, 10)]
    with knowing(Steps([row(5, attempt=1), row(6, attempt=1), *left])) as service:
        seen = Keeps()
        with Monitor(service.url, "r", attempt=1, log_to=seen) as monitor:
            for step in (5, 6):
                monitor.log(step=step, **batch())
        assert [step for step, _ in seen.steps] == [5, 6]


def test_a_driver_stops_at_steps_of_an_attempt_that_was_given_up() -> None:
    with knowing(Steps([row(5, attempt=1), row(6, attempt=0)], last_step=4)) as service:
        seen = Keeps()
        Monitor(service.url, "r", log_to=seen, for_run=True).close()
        assert [step for step, _ in seen.steps] == [5]


def test_many_steps_are_asked_for_by_pages() -> None:
    with knowing(Steps([row(step) for step in range(250)])) as service:
        seen = Keeps()
        with Monitor(service.url, "r", log_to=seen) as monitor:
            monitor.log(step=0, **batch())
            monitor.flush()
            monitor.log(step=249, **batch())
        assert [step for step, _ in seen.steps] == list(range(250))
        assert len(service.asked) <= 5


class Later(Function):
    """A logger that is ready for the steps that it was told of."""

    def __init__(self, seen: Keeps) -> None:
        super().__init__(seen)
        self.ready: set[int] = set()

    def is_ready(self, step: int) -> bool:
        return step in self.ready


def test_a_step_waits_for_its_logger_until_it_is_ready_or_two_newer_ones_are_there() -> None:
    with knowing(Steps([row(step) for step in range(5)])) as service:
        seen = Keeps()
        logger = Later(seen)
        follower = follow.Follower(Connection(service.url, 5.0, None), "/v1/runs/r", logger, {}, print)
        for posted, ready, written in ((0, 5, []), (1, 0, [0]), (4, 5, [0, 1, 2])):
            logger.ready.add(ready)
            with follower._changed:
                follower._next, follower._posted = follower._next or 0, posted
            follower._looks = follow.LOOKS - 1
            follower._handed_over()
            assert [step for step, _ in seen.steps] == written
        follower.stored(4)
        follower.close(1.0)
        assert [step for step, _ in seen.steps] == [0, 1, 2, 3, 4]


def test_what_a_logger_raises_is_said_once_and_the_next_step_follows(caplog: pytest.LogCaptureFixture) -> None:
    tried = list[int]()

    def fails(step: int, figures: Mapping[str, float], verdict: str | None) -> None:
        tried.append(step)
        raise OSError("no space left")

    with knowing(Steps([row(step) for step in range(3)])) as service:
        monitor = Monitor(service.url, "r", strict=True, log_to=fails)
        for step in range(3):
            monitor.log(step=step, **batch())
        monitor.close()
    assert tried == [0, 1, 2] and monitor.stats["sent"] == 3
    assert [record.getMessage() for record in caplog.records] == [
        "log_to: OSError: no space left (said once; monitor.stats counts)"
    ]


def test_a_logger_that_stands_still_holds_up_neither_the_shards_nor_the_trainers_end() -> None:
    held = threading.Event()
    with knowing(Steps([row(0)])) as service:
        monitor = Monitor(service.url, "r", log_to=lambda *_: held.wait(30))
        for step in range(20):
            monitor.log(step=step, **batch())
        assert monitor.flush(5.0)
        begun = time.monotonic()
        monitor.close(deadline=0.2)
        assert time.monotonic() - begun < 5.0 and monitor.stats["sent"] == 20
        held.set()


def test_a_service_that_cannot_say_headlines_is_told_of_and_takes_batches_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    old = Said(422, {"type": "urn:offpolicy-monitor:problem:unknown-parameter", "detail": "detail is not known"})
    with knowing(Steps(refusal=old)) as service:
        seen = Keeps()
        monitor = Monitor(service.url, "r", log_to=seen)
        monitor.log(step=0, **batch())
        assert monitor.finish(deadline=1.0)
        monitor.close()
    assert seen.steps == [] and monitor.stats["sent"] == 1
    assert "log_to: ConnectionError: 422 detail is not known" in caplog.text


def test_copies_of_a_monitor_log_nothing() -> None:
    with knowing(Steps([row(0)])) as service:
        seen = Keeps()
        with Monitor(service.url, "r", log_to=seen) as monitor:
            with pickle.loads(pickle.dumps(monitor)) as copy:
                copy.log(step=0, **batch())
            child = os.fork()
            if not child:
                monitor.log(step=0, **batch())
                monitor.close()
                os._exit(len(seen.steps))
            assert os.waitpid(child, 0)[1] == 0
        assert seen.steps == [] and service.asked == []


def test_what_is_no_logger_is_refused_before_training_begins() -> None:
    with pytest.raises(ConfigurationError, match="log_to: int is none of a W&B run"):
        Monitor("http://127.0.0.1:1", "r", log_to=3)
    with pytest.raises(ConfigurationError, match="no names of 'verll' are known, but of verl, TRL"):
        Monitor("http://127.0.0.1:1", "r", log_to=Keeps(), log_as="verll")


def test_a_service_that_is_away_is_asked_ever_less_often() -> None:
    trouble = list[str]()
    connection = Connection("http://127.0.0.1:1", 1.0, None)
    follower = follow.Follower(connection, "/v1/runs/r", Function(Keeps()), {}, trouble.append)
    follower.stored(0)
    time.sleep(0.2)
    assert len(trouble) == 1
    follower.close(0.5)
    assert 2 <= len(trouble) <= 8
