"""An evaluation is done in slices, between which shards have their turn and the service may be stopped."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.measure.summarise import block_sums, summarise
from offpolicy_monitor.methods import PRESETS, parse_rows
from offpolicy_monitor.slices import Slices

from tests.strategies import packed, random_sequences


def test_no_slice_does_the_work_of_all_rows_that_cut_by_all_tokens() -> None:
    measurer, batch = Measurer("cpu"), packed(random_sequences(1, [4_000] * 10, 0.05))
    rows = parse_rows([{"name": str(number), "method": "m2po", "threshold": 1e-5 * number} for number in range(200)])
    measurer.evaluate(batch, rows[:1])
    seconds = seconds_of_slices(measurer.evaluation(batch, rows))
    assert max(seconds) < sum(seconds) / 3


def seconds_of_slices(work: Slices[Any]) -> list[float]:
    """Of a processor, each but the last, which is the answer."""
    times = [time.thread_time(), *(time.thread_time() for _ in work)]
    return [after - before for before, after in pairwise(times)]


def test_torch_does_one_thing_at_a_time_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    at_work, most = list[int](), list[int]()

    def alone(work: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **options: Any) -> Any:
            at_work.append(1)
            most.append(len(at_work))
            time.sleep(0.001)
            try:
                return work(*args, **options)
            finally:
                at_work.pop()

        return noted

    monkeypatch.setattr("offpolicy_monitor.measure.measurer.summarise", alone(summarise))
    monkeypatch.setattr("offpolicy_monitor.measure.evaluate.block_sums", alone(block_sums))
    measurer, batch = Measurer("cpu"), packed(random_sequences(1, [40] * 10, 0.05))
    with ThreadPoolExecutor(4) as threads:
        jobs = [
            threads.submit(job, batch)
            for _ in range(6)
            for job in (partial(measurer.measure, rows=PRESETS), measurer.evaluate)
        ]
        for job in jobs:
            job.result()
    assert len(most) == 12 and max(most) == 1
