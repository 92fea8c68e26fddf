import threading

import numpy as np
import pytest
from offpolicy_monitor.client.read import Unreachable
from offpolicy_monitor.demo.config import DemoConfig
from offpolicy_monitor.demo.progress import Progress
from offpolicy_monitor.demo.train import run_demo
from safetensors.numpy import load

from tests.client.fakes import Fake, serving
from tests.demo.small import ANSWER, small
from tests.fixtures.http_stub import Said, unused_url


def test_every_gradient_step_is_posted_and_acknowledged(service: Fake) -> None:
    seen: list[Progress] = []
    result = run_demo(small(url=service.url, run="r1", steps=4), seen.append)
    assert (result.run, result.steps, result.acknowledged, result.failed, result.dropped) == ("r1", 4, 8, 0, 0)
    posted = [(frame.envelope["step"], frame.envelope["minibatch"]) for frame in service.frames()]
    assert posted == [(step, minibatch) for step in range(4) for minibatch in range(2)]
    assert [progress.step for progress in seen] == [0, 1, 2, 3]
    assert result.mismatch_k3 == pytest.approx(0.001)
    assert result.reward_first is not None
    assert 0 < result.reward_first < 1
    assert all(progress.rate > 0 and 1 <= progress.length <= 6 for progress in seen)


@pytest.mark.parametrize(("lag", "versions"), [(0, [0, 1, 2, 3, 4]), (1, [0, 0, 1, 2, 3]), (2, [0, 0, 0, 1, 2])])
def test_tokens_carry_the_version_that_sampled_them(service: Fake, lag: int, versions: list[int]) -> None:
    run_demo(small(url=service.url, steps=5, minibatches=1, lag=lag))
    sampled = []
    for post in service.posts():
        arrays = load(post.body)
        sampled.append(np.unique(arrays["policy_versions"][arrays["mask"]]).tolist())
    assert sampled == [[version] for version in versions]


@pytest.mark.parametrize(("lag", "exactly"), [(0, True), (1, False)])
def test_staleness_begins_with_the_first_weights_that_differ(service: Fake, lag: int, exactly: bool) -> None:
    run_demo(small(url=service.url, steps=2, lag=lag))
    arrays = load(service.posts()[2].body)  # the first gradient step of the second training step
    assert np.array_equal(arrays["logprobs"], arrays["old_logprobs"]) == exactly
    arrays = load(service.posts()[3].body)
    assert not np.array_equal(arrays["logprobs"], arrays["old_logprobs"])


def test_the_exact_sampler_posts_equal_bits_under_the_profile_bitwise(service: Fake) -> None:
    run_demo(small(url=service.url, steps=3, sampler="exact"))
    for post in service.posts():
        arrays = load(post.body)
        mask = arrays["mask"]
        assert np.array_equal(arrays["old_logprobs"][mask], arrays["sampling_logprobs"][mask])
    patches = [request.body for request in service.asked if request.method == "PATCH"]
    assert patches == [b'{"profile": "bitwise"}']


def test_training_goes_on_while_the_service_refuses() -> None:
    with serving(Fake(rest=Said(422, {"detail": "step: no"}))) as service:
        result = run_demo(small(url=service.url, steps=3))
    assert (result.steps, result.acknowledged, result.failed, result.last_error) == (3, 0, 6, "422 step: no")
    assert result.mismatch_k3 is None


def test_what_a_service_cannot_take_for_a_while_is_posted_again() -> None:
    busy = Said(503, {"detail": "busy"})
    with serving(Fake([busy, busy], rest=ANSWER)) as service:
        result = run_demo(small(url=service.url, steps=1))
    assert (result.acknowledged, result.failed, result.dropped) == (2, 0, 0)
    assert len(service.posts()) == 4


def test_a_run_that_is_posted_to_again_begins_a_new_attempt() -> None:
    with serving(Fake(rest=ANSWER, run={"last_step": 7, "attempt": 2})) as service:
        run_demo(small(url=service.url, steps=1))
    assert {frame.envelope["attempt"] for frame in service.frames()} == {3}


def test_a_stop_ends_the_run_after_the_step_at_hand(service: Fake) -> None:
    stop = threading.Event()

    def report(progress: Progress) -> None:
        if progress.step == 1:
            stop.set()

    result = run_demo(small(url=service.url), report, stop)
    assert (result.steps, result.acknowledged) == (2, 4)


def test_a_time_limit_ends_the_run(service: Fake) -> None:
    result = run_demo(small(url=service.url, seconds=0.5))
    assert result.steps >= 1
    assert 0.5 <= result.seconds < 10


def test_a_service_that_is_not_there_is_said_before_any_training() -> None:
    seen: list[Progress] = []
    opened: list[DemoConfig] = []
    url = unused_url()
    with pytest.raises(Unreachable, match="offpolicy-monitor serve") as raised:
        run_demo(small(url=url, steps=1), seen.append, opening=opened.append)
    assert url in str(raised.value)
    assert (seen, opened) == ([], [])
