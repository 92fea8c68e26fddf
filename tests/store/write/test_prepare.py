"""A shard whose sums are too large to be merged is refused by the array that they were summed from."""

from dataclasses import replace

import pytest
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.store.write.prepare import prepare
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.wire.arrays import ARRAYS

from tests.fixtures.shards import make_record

HUGE = 1.2e308


@pytest.mark.parametrize(
    ("key", "row", "field"),
    [
        ("breakdown/advantage_sign/total", "k3", "logprobs"),
        ("advantage/total", "mass_square", "advantages"),
        ("noise_floor/trainer", "k3", "old_logprobs_repeat"),
        ("noise_floor/cross_engine", "k3", "engine_logprobs"),
        ("support/mismatch", "ratio", "old_support_logprobs"),
        ("support/total", "ratio", "support_logprobs"),
    ],
)
def test_a_sum_that_is_too_large_names_the_array_that_it_comes_from(key: str, row: str, field: str) -> None:
    rows = dict.fromkeys(LAYOUT.at(key).names, 0) | {row: HUGE}
    summary = StepSummary(Arrays.of(LAYOUT, {key: rows}))
    refused = prepare(replace(make_record(), summary=summary))
    assert isinstance(refused, Refusal)
    assert (refused.kind, [error.field for error in refused.errors]) == ("figures-overflow", [field])
    assert f"{key}/{row}" in refused.errors[0].message


def test_every_table_is_summed_from_an_array_that_can_be_sent() -> None:
    assert {table.summed_from for table in LAYOUT.tables} <= ARRAYS.keys()
