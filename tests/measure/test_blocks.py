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
        ((0, 0, 3, 0), 3, [(0, 1)]),
        ((3, 0, 0, 1), 3, [(0, 1), (1, 2)]),
        ((0, 0), 1, []),
        ((), 1, []),
        ((5, 5), 1 << 40, [(0, 2)]),
    ],
)
def test_blocks_are_as_many_whole_sequences_with_a_token_as_fit(
    lengths: tuple[int, ...], tokens: int, expected: list[tuple[int, int]]
) -> None:
    assert [(block.first, block.last) for block in loaded(*lengths).blocks(tokens)] == expected


def test_valid_tokens_are_finite_in_both_columns_of_their_gap() -> None:
    columns = {
        "sampling_logprobs": [-1.0, math.nan, -1.0, -1.0],
        "old_logprobs": [-2.0, -2.0, -math.inf, -2.0],
        "logprobs": [-4.0, -4.0, -4.0, -4.5],
    }
    batch = DeviceBatch.load(packed([Sequence(columns, [1] * 4, [1.0, 2.0, 3.0, 4.0])]), CPU)
    (block,) = batch.blocks(4)
    assert block.gaps.valid is not None
    valid = dict(zip((*batch.gaps, "joint"), block.gaps.valid.int().tolist(), strict=False))
    assert valid == {"mismatch": [1, 0, 0, 1], "staleness": [1, 1, 0, 1], "total": [1, 0, 1, 1], "joint": [1, 0, 0, 1]}
    assert block.gaps.columns.log_ratio[2].tolist() == [-3.0, 0.0, -3.0, -3.5]
    assert batch.joint == {"mismatch": 3, "staleness": 4, "total": 5}
    assert block.gaps.columns.log_ratio[5].tolist() == [-3.0, 0.0, 0.0, -3.5]


def test_where_all_is_finite_there_is_no_mask_and_a_gap_is_its_own_joint_one() -> None:
    batch = loaded(2, 0, 1)
    (block,) = batch.blocks(9)
    assert block.gaps.valid is None
    assert batch.joint == {"mismatch": 0, "staleness": 1, "total": 2}
    assert block.sequences.tolist() == [0, 2]


def test_only_the_gaps_whose_arrays_were_sent_are_there() -> None:
    columns = {"old_logprobs": [-1.0], "logprobs": [-1.0]}
    assert DeviceBatch.load(packed([Sequence(columns, [1])]), CPU).gaps == ("staleness",)
    assert loaded(1).gaps == ("mismatch", "staleness", "total")
