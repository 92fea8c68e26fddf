import threading

import numpy as np
import pytest
from offpolicy_monitor.demo.config import DemoConfig
from offpolicy_monitor.demo.progress import Progress
from offpolicy_monitor.demo.train import run_demo
from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.wire.frame import decode
from safetensors.numpy import load

from tests.demo.small import small
from tests.demo.stub import StubService, serve, unused_url


def test_every_gradient_step_is_posted_and_acknowledged(service: StubService) -> None:
    seen: list[Progress] = []
    result = run_demo(small(url=service.url, run="r1", steps=4), seen.append)
    assert (result.run, result.steps, result.acknowledged, result.failed, result.dropped) == ("r1", 4, 8, 0, 0)
    frames = [decode(memoryview(body), 1 << 20, 32) for body in service.bodies()]
    posted = [(frame.envelope["step"], frame.envelope["minibatch"]) for frame in frames]
    assert posted == [(step, minibatch) for step in range(4) for minibatch in range(2)]
    assert [progress.step for progress in seen] == [0, 1, 2, 3]
    assert result.mismatch_k3 == pytest.approx(0.001)
    assert result.reward_first is not None
    assert 0 < result.reward_first < 1
    assert all(progress.rate > 0 and 1 <= progress.length <= 6 for progress in seen)


@pytest.mark.parametrize(("lag", "versions"), [(0, [0, 1, 2, 3, 4]), (1, [0, 0, 1, 2, 3]), (2, [0, 0, 0, 1, 2])])
def test_tokens_carry_the_version_that_sampled_them(service: StubService, lag: int, versions: list[int]) -> None:
    run_demo(small(url=service.url, steps=5, minibatches=1, lag=lag))
    sampled = []
    for body in service.bodies():
        arrays = load(body)
        sampled.append(np.unique(arrays["policy_versions"][arrays["mask"]]).tolist())
    assert sampled == [[version] for version in versions]


@pytest.mark.parametrize(("lag", "exactly"), [(0, True), (1, False)])
def test_staleness_begins_with_the_first_weights_that_differ(service: StubService, lag: int, exactly: bool) -> None:
    run_demo(small(url=service.url, steps=2, lag=lag))
    arrays = load(service.bodies()[2])  # the first gradient step of the second training step
    assert np.array_equal(arrays["logprobs"], arrays["old_logprobs"]) == exactly
    arrays = load(service.bodies()[3])
    assert not np.array_equal(arrays["logprobs"], arrays["old_logprobs"])


def test_the_exact_sampler_posts_equal_bits_under_the_profile_bitwise(service: StubService) -> None:
    run_demo(small(url=service.url, steps=3, sampler="exact"))
    for body in service.bodies():
        arrays = load(body)
        mask = arrays["mask"]
        assert np.array_equal(arrays["old_logprobs"][mask], arrays["sampling_logprobs"][mask])
    patches = [request.body for request in service.requests if request.method == "PATCH"]
    assert patches == [b'{"profile": "bitwise"}']


def test_training_goes_on_while_the_service_refuses() -> None:
    with serve(StubService(status=503)) as service:
        result = run_demo(small(url=service.url, steps=3))
    assert (result.steps, result.acknowledged, result.failed) == (3, 0, 6)
    assert result.mismatch_k3 is None


def test_a_stop_ends_the_run_after_the_step_at_hand(service: StubService) -> None:
    stop = threading.Event()

    def report(progress: Progress) -> None:
        if progress.step == 1:
            stop.set()

    result = run_demo(small(url=service.url), report, stop)
    assert (result.steps, result.acknowledged) == (2, 4)


def test_a_time_limit_ends_the_run(service: StubService) -> None:
    result = run_demo(small(url=service.url, seconds=0.5))
    assert result.steps >= 1
    assert 0.5 <= result.seconds < 10


def test_a_service_that_is_not_there_is_said_before_any_training() -> None:
    seen: list[Progress] = []
    opened: list[DemoConfig] = []
    url = unused_url()
    with pytest.raises(ConfigurationError, match="offpolicy-monitor serve") as raised:
        run_demo(small(url=url, steps=1), seen.append, opening=opened.append)
    assert url in str(raised.value)
    assert (seen, opened) == ([], [])
