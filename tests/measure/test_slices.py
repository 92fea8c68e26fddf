"""An evaluation is done in slices, between which shards have their turn and the service may be stopped."""

import time
from itertools import pairwise
from typing import Any

from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import parse_rows
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
