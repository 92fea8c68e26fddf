"""A batch is cut into blocks of whole sequences; a gap's tokens in a block are those finite in both columns."""

import math

import pytest
import torch
from offpolicy_monitor.measure.blocks import DeviceBatch

from tests.reference import COLUMNS, Sequence
from tests.strategies import packed

CPU = torch.device("cpu")


def loaded(*lengths: int) -> DeviceBatch:
    sent = [Sequence({name: [-1.0] * length for name in COLUMNS}, [1] * length) for length in lengths]
    return DeviceBatch.load(packed(sent), CPU)


@pytest.mark.parametrize(
    ("lengths", "tokens", "expected"),
    [
        ((2, 2, 2), 4, [(0, 2), (2, 3)]),
        ((2, 2, 2), 3, [(0, 1), (1, 2), (2, 3)]),
        ((9, 1, 1), 2, [(0, 1), (1, 3)]),
        ((1, 9, 1), 2, [(0, 1), (1, 2), (2, 3)]),
        ((0, 0, 3, 0), 3, [(0, 4)]),
        ((3, 0, 0, 1), 3, [(0, 3), (3, 4)]),
        ((0, 0), 1, [(0, 2)]),
        ((), 1, []),
        ((5, 5), 1 << 40, [(0, 2)]),
    ],
)
def test_blocks_are_as_many_whole_sequences_as_fit(
    lengths: tuple[int, ...], tokens: int, expected: list[tuple[int, int]]
) -> None:
    assert [(block.first, block.last) for block in loaded(*lengths).blocks(tokens)] == expected


def test_valid_tokens_are_finite_in_both_columns_of_their_gap() -> None:
    columns = {
        "sampling_logprobs": [-1.0, math.nan, -1.0, -1.0],
        "old_logprobs": [-2.0, -2.0, -math.inf, -2.0],
        "logprobs": [-4.0, -4.0, -4.0, -4.5],
    }
    block = DeviceBatch.load(packed([Sequence(columns, [1] * 4, [1.0, 2.0, 3.0, 4.0])]), CPU).whole()
    found = {gap: block.valid(gap) for gap in ("mismatch", "staleness", "total")}
    places = {gap: valid.tokens.tolist() for gap, valid in found.items() if valid and valid.tokens is not None}
    assert places == {"mismatch": [0, 3], "staleness": [0, 1, 3], "total": [0, 2, 3]}
    total = found["total"]
    assert total is not None and total.gap.advantages is not None
    assert total.gap.log_ratio.tolist() == [-3.0, -3.0, -3.5]
    assert total.gap.advantages.values.tolist() == [1.0, 3.0, 4.0]
    joint = block.jointly_valid("staleness")
    assert joint is not None and joint.tokens is not None and joint.tokens.tolist() == [0, 3]


def test_a_gap_without_a_valid_token_is_none() -> None:
    columns = {"sampling_logprobs": [math.nan, -1.0], "old_logprobs": [-1.0, math.inf]}
    block = DeviceBatch.load(packed([Sequence(columns, [1, 1])]), CPU).whole()
    assert block.valid("mismatch") is None
    assert loaded(0, 0).whole().valid("total") is None


def test_only_the_gaps_whose_arrays_were_sent_are_there() -> None:
    columns = {"old_logprobs": [-1.0], "logprobs": [-1.0]}
    assert DeviceBatch.load(packed([Sequence(columns, [1])]), CPU).gaps == ("staleness",)
    assert loaded(1).gaps == ("mismatch", "staleness", "total")
