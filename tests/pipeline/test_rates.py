"""How much a run may send: counted by a clock that the test sets, against what a second and a burst come to."""

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.pipeline.pace import Pace
from offpolicy_monitor.pipeline.rates import MOST, Rate, RunRates
from offpolicy_monitor.settings import Settings


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Bodies:
    """Bodies that arrive at a service, as far as its rates are concerned."""

    rates: RunRates
    clock: Clock = field(default_factory=Clock)

    @classmethod
    def of(cls, **settings: Any) -> "Bodies":
        clock = Clock()
        return cls(RunRates(Settings(**settings), clock), clock)

    def come(self, run: str = "r1", declared: int = 0, arrived: int | None = None) -> Unavailable | None:
        """What one is refused for."""
        pace = Pace(declared, 60)
        try:
            with self.rates.counted(run, declared, pace):
                pace.received = declared if arrived is None else arrived
        except Unavailable as refused:
            return refused
        return None


def test_a_run_sends_its_burst_at_once_and_then_goes_on_at_its_rate() -> None:
    bodies = Bodies.of(run_requests_per_second=2, run_burst=5)
    assert [bodies.come() is None for _ in range(12)] == [True] * 10 + [False] * 2
    bodies.clock.now += 1.001
    assert [bodies.come() is None for _ in range(4)] == [True] * 2 + [False] * 2
    assert bodies.come("r2") is None
    bodies.clock.now += 100
    assert [bodies.come() is None for _ in range(11)] == [True] * 10 + [False]


def test_over_a_long_time_no_pattern_gets_more_than_the_rate_and_one_burst() -> None:
    chance = random.Random(3)
    bodies = Bodies.of(run_requests_per_second=4, run_bytes_per_second=1000, run_burst=10)
    let_in, taken, began = 0, 0, bodies.clock.now
    for _ in range(20_000):
        bodies.clock.now += chance.expovariate(20)
        size = chance.choice([10, 100, 3000])
        if bodies.come(declared=size) is None:
            let_in, taken = let_in + 1, taken + size
    seconds = bodies.clock.now - began
    assert 0.95 * 1000 * seconds < taken <= 1000 * (seconds + 10) + 3000
    assert let_in <= 4 * (seconds + 10)


def test_the_refusal_names_run_limit_and_setting_and_a_time_at_which_it_is_let_in() -> None:
    bodies = Bodies.of(run_bytes_per_second=100, run_burst=2)
    assert bodies.come(declared=1000) is None  # larger than the whole allowance, which is 200
    refused = bodies.come(declared=90)
    assert refused is not None
    assert (refused.status, refused.kind, refused.retry_after) == (429, "run-bytes-rate", 9)
    for named in ("run r1 ", "100 bytes per second", "2 s", "9 s", "OFFPOLICY_RUN_BYTES_PER_SECOND"):
        assert named in refused.detail
    bodies.clock.now += 8.8
    assert bodies.come(declared=90) is not None
    bodies.clock.now += refused.retry_after - 8.8
    assert bodies.come(declared=90) is None


def test_what_was_declared_and_never_came_is_given_back_and_what_came_undeclared_is_counted() -> None:
    bodies = Bodies.of(run_bytes_per_second=100, run_burst=2)
    for _ in range(5):
        assert bodies.come(declared=10_000, arrived=0) is None
    assert bodies.come(declared=0, arrived=500) is None
    refused = bodies.come()
    assert refused is not None and refused.retry_after == 4
    bodies.clock.now += 3
    assert bodies.come() is None


@pytest.mark.parametrize("requests", [0.001, 5.0])
def test_one_batch_is_always_let_in_however_small_the_rate(requests: float) -> None:
    bodies = Bodies.of(run_requests_per_second=requests, run_burst=0.001)
    assert bodies.come() is None
    assert bodies.come() is not None
    bodies.clock.now += 1 / requests
    assert bodies.come() is None


def test_a_hundred_thousand_names_take_bounded_memory_and_free_no_run_that_goes_on() -> None:
    clock = Clock()
    rate = Rate(1.0, 5.0, clock)
    for _ in range(10):
        rate.take("busy", 1)
    for number in range(100_000):
        rate.take(f"run-{number}", 1)
        if number % 1000 == 0:
            rate.take("busy", 0.0001)
    assert len(rate) == MOST
    assert rate.wait("busy", 1) > 0 and rate.wait("run-1", 5) == 0 < rate.wait("run-99999", 5)


def test_a_run_whose_allowance_is_whole_is_not_remembered() -> None:
    rate = Rate(1.0, 5.0, Clock())
    rate.take("r1", 3)
    rate.take("r1", -3)
    assert len(rate) == 0
