"""First halves are kept within their bytes and their time."""

import pytest
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.pipeline.rollouts import RolloutCache


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
