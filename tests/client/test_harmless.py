"""Whatever state the service is in: training keeps its pace, memory is bounded, every batch is accounted for."""

import statistics
import tracemalloc

import pytest
from offpolicy_monitor import Monitor

from tests.client.batches import batch, nbytes
from tests.client.conditions import CONDITIONS, train
from tests.client.fakes import black_hole

STEPS = 24
COMPUTE = 0.005  # seconds per step
# What `log` may take beside 1.2 times a copy: a call's fixed cost in Python, and being scheduled on a busy machine.
ALLOWANCE = 0.002
QUEUE = 64 << 20
ARRAYS = batch(128, 8192)


def undisturbed(seconds: list[float]) -> float:
    """The lowest tenth: what it takes while other tests leave the machine alone."""
    return statistics.quantiles(seconds, n=10)[0]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_step_with_the_monitor_takes_one_copy_more_than_one_without(condition: str) -> None:
    with CONDITIONS[condition]() as url:
        monitor = Monitor(url, "r", queue_bytes=QUEUE, timeout=1.0, attempt=0)
        without = train(None, ARRAYS, STEPS, COMPUTE, QUEUE)
        with_it = train(monitor, ARRAYS, STEPS, COMPUTE, QUEUE)
        stats = dict(monitor.stats)
        monitor.close(0.1)
    copy, log = undisturbed(without.copy), undisturbed(with_it.log)
    assert log <= 1.2 * copy + ALLOWANCE, f"log {log:.6f} s, copy {copy:.6f} s"
    # Both steps may wait to be scheduled, too. A monitor that waited for the service would take a second.
    assert undisturbed(with_it.step) <= undisturbed(without.wait) + 1.2 * copy + 3 * ALLOWANCE
    assert stats["pending_bytes"] <= QUEUE
    stats = dict(monitor.stats)
    assert stats["logged"] == STEPS == stats["sent"] + stats["dropped"] + stats["errors"]
    assert (stats["pending"], stats["pending_bytes"]) == (0, 0)
    expected = {"healthy": {"sent"}, "refusing": {"errors"}}.get(condition, set())
    assert expected <= {name for name in ("sent", "errors", "dropped") if stats[name]}
    if condition in ("stopped", "absent", "breaking", "slow"):
        assert stats["dropped_by"].keys() == {"queue_full", "deadline"} and not stats["errors"]


def test_memory_stays_under_the_bound_while_nothing_is_taken() -> None:
    arrays = batch(64, 2048)
    bound = 8 * nbytes(arrays)
    with black_hole() as url:
        monitor = Monitor(url, "r", queue_bytes=bound, timeout=0.5, attempt=0)
        tracemalloc.start()
        for step in range(100):
            monitor.log(step=step, **arrays)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        monitor.close(0.1)
    assert 7 * nbytes(arrays) < peak < bound + 200_000
    assert monitor.stats["dropped_by"] == {"queue_full": 92, "deadline": 8}


def test_first_halves_stay_under_the_same_bound_again() -> None:
    arrays = {name: array for name, array in batch(64, 2048).items() if name != "logprobs"}
    bound = 8 * nbytes(arrays)
    with black_hole() as url:
        monitor = Monitor(url, "r", queue_bytes=bound, timeout=0.5, attempt=0)
        tracemalloc.start()
        for step in range(50):
            monitor.log(step=step, rollout=f"r{step}", **arrays)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        monitor.close(0.1)
    assert peak < 2 * bound + 200_000
