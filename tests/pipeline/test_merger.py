"""Requests whose shards complete or join the same large step share a merge that has all of their shards."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from offpolicy_monitor.pipeline.merger import Merger
from offpolicy_monitor.pipeline.writer import Writer
from offpolicy_monitor.store import Receipt, ShardRecord, StepKey
from offpolicy_monitor.summary.step import StepSummary

STEP = (1, 0, 0, 0)
WAITING = Receipt(False, 256, 256, True, False, StepSummary(), unmerged=STEP)


class Steps:
    """Counts merges; each takes 20 ms. `kept` is what was handed in to be kept."""

    def __init__(self, can_merge: bool = True) -> None:
        self.merges = 0
        self.kept: list[Any] = []
        self._can_merge = can_merge

    def ingest(self, records: Sequence[ShardRecord]) -> Sequence[Receipt]:
        return []

    def merge(self, keys: Sequence[StepKey]) -> Mapping[StepKey, Any]:
        self.merges += 1
        time.sleep(0.02)
        return {key: self.merges for key in keys} if self._can_merge else {}

    def keep(self, merges: Any) -> int:
        self.kept.append(merges)
        return len(merges)

    def finished(self, receipt: Receipt, run: str) -> Receipt:
        return replace(receipt, verdict=run, step_completed=True, unmerged=None)


async def finished(steps: Steps, receipts: Sequence[Receipt], pause: float = 0.0) -> list[Receipt]:
    writer = Writer(steps)
    merging = Merger(steps, writer)
    tasks = []
    for receipt in receipts:
        tasks.append(asyncio.create_task(merging.finish("r", receipt)))
        await asyncio.sleep(pause)
    answers = await asyncio.gather(*tasks)
    merging.close()
    writer.close()
    return list(answers)


def test_a_receipt_whose_step_is_merged_passes_as_it_is() -> None:
    steps, merged = Steps(), replace(WAITING, unmerged=None)
    assert asyncio.run(finished(steps, [merged])) == [merged]
    assert steps.merges == 0


def test_a_receipt_tells_of_the_step_after_its_merge_was_kept() -> None:
    steps = Steps()
    [receipt] = asyncio.run(finished(steps, [WAITING]))
    assert (receipt.step_completed, receipt.verdict) == (True, "r")
    assert steps.kept == [{STEP: 1}]


def test_late_shards_that_wait_share_a_merge_that_begins_after_they_were_stored() -> None:
    steps = Steps()
    receipts = asyncio.run(finished(steps, [WAITING] * 30, pause=0.001))
    assert all(receipt.step_completed for receipt in receipts)
    assert 2 <= steps.merges <= 10


def test_a_step_that_cannot_be_merged_leaves_the_receipt_as_it_was() -> None:
    steps = Steps(can_merge=False)
    assert asyncio.run(finished(steps, [WAITING])) == [WAITING]
    assert steps.kept == []
