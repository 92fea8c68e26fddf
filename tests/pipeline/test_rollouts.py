"""First halves are kept within their bytes and their time."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.pipeline.decoder import limits_of
from offpolicy_monitor.pipeline.rollouts import RolloutCache
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.wire.decode import decode_batch
from offpolicy_monitor.wire.frame import MEDIA_TYPE
from offpolicy_monitor.wire.message import Message

from tests.fixtures.application import frame_bytes


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_half_serves_every_gradient_step_that_names_it() -> None:
    cache: RolloutCache[str] = RolloutCache(100, ttl=10)
    cache.keep(("r", "p1", 0), "half", 60)
    assert [cache.find(("r", "p1", 0)) for _ in range(2)] == ["half", "half"]


def test_the_oldest_go_first_when_bytes_run_out() -> None:
    cache: RolloutCache[str] = RolloutCache(100, ttl=10)
    for shard in range(3):
        cache.keep(("r", "p1", shard), f"half {shard}", 40)
    assert cache.used == 80
    assert cache.find(("r", "p1", 2)) == "half 2"
    with pytest.raises(Refusal) as gone:
        cache.find(("r", "p1", 0))
    assert gone.value.status == 410


def test_a_half_is_gone_after_its_time() -> None:
    clock = Clock()
    cache: RolloutCache[str] = RolloutCache(100, ttl=10, clock=clock)
    cache.keep(("r", "p1", 0), "half", 40)
    clock.now = 10.5
    with pytest.raises(Refusal):
        cache.find(("r", "p1", 0))
    assert cache.used == 0


def test_a_half_sent_again_replaces_the_first() -> None:
    cache: RolloutCache[str] = RolloutCache(100, ttl=10)
    cache.keep(("r", "p1", 0), "old", 80)
    cache.keep(("r", "p1", 0), "new", 90)
    assert (cache.find(("r", "p1", 0)), cache.used) == ("new", 90)


def test_a_half_larger_than_the_cache_is_not_kept() -> None:
    cache: RolloutCache[str] = RolloutCache(100, ttl=10)
    assert cache.keep(("r", "p1", 0), "half", 101) is False
    assert cache.used == 0


def test_forgetting_a_run_drops_its_halves_and_no_others() -> None:
    cache: RolloutCache[str] = RolloutCache(100, ttl=10)
    for run, shard in (("r", 0), ("s", 0), ("r", 1)):
        cache.keep((run, "p1", shard), f"{run} {shard}", 20)
    cache.forget("r")
    assert cache.used == 20
    assert cache.find(("s", "p1", 0)) == "s 0"
    for shard in (0, 1):
        with pytest.raises(Refusal):
            cache.find(("r", "p1", shard))


FLOATS = np.full(3, -1.0, np.float32)
HALVES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "empty": ({}, {"lengths": np.zeros(0, np.int64), "sampling_logprobs": FLOATS[:0]}),
    "three tokens": ({}, {"lengths": [3], "sampling_logprobs": FLOATS}),
    "masked": ({}, {"lengths": [3], "old_logprobs": FLOATS, "turns": [0, 0, 1], "mask": np.array([1, 0, 1], bool)}),
    "labels": ({"labels": {f"key{n}": "x" * 60 for n in range(8)}}, {"lengths": [3], "old_logprobs": FLOATS}),
    "ids": ({"sequence_ids": [f"id{n}" for n in range(100)]}, {"lengths": [0] * 99 + [3], "old_logprobs": FLOATS}),
    "wide ids": (
        {"sequence_ids": [f"{n}" + "\U0001f600" * 50 for n in range(100)]},
        {"lengths": [0] * 99 + [3], "old_logprobs": FLOATS},
    ),
}


@pytest.mark.parametrize("name", HALVES)
def test_a_half_counts_what_it_takes(name: str) -> None:
    envelope, arrays = HALVES[name]
    bodies = [frame_bytes({"step": 1, "rollout": f"p{n}", **envelope}, arrays) for n in range(60)]
    cache: RolloutCache[Message] = RolloutCache(1 << 30, ttl=10)
    limits = limits_of(Settings(_env_file=None))

    def keep(body: bytes) -> None:
        half = decode_batch(body, MEDIA_TYPE, limits)
        assert isinstance(half, Message) and half.is_first_half
        owned = half.owned()
        cache.keep(("a-run", owned.envelope.rollout or "", 0), owned, owned.nbytes)

    for body in bodies[:10]:
        keep(body)
    counted = cache.used
    tracemalloc.start()
    for body in bodies[10:]:
        keep(body)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert taken <= cache.used - counted <= 2 * taken
