"""A RaggedBatch keeps what it promises, and packing drops exactly what the mask excludes."""

from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.batch import RaggedBatch

F32 = np.float32


def int64(*values: int) -> Any:
    return np.array(values, np.int64)


def float32(*values: float) -> Any:
    return np.array(values, F32)


def test_packing_drops_what_the_mask_excludes() -> None:
    batch = RaggedBatch.from_positions(
        int64(3, 0, 2),
        {"sampling_logprobs": float32(-1, -2, -3, -4, -5), "turns": int64(0, 0, 1, 0, 1)},
        {"advantages": float32(1, 2, 3)},
        np.array([True, False, True, False, True]),
    )
    assert batch.offsets.tolist() == [0, 2, 2, 3]
    assert batch.positions is not None and batch.positions.tolist() == [0, 2, 4]
    assert batch.columns["sampling_logprobs"].tolist() == [-1, -3, -5]
    assert batch.columns["turns"].tolist() == [0, 1, 1]
    assert batch.columns["advantages"].tolist() == [1, 2, 3]
    assert (batch.tokens, batch.sequences, batch.lengths.tolist()) == (3, 3, [3, 0, 2])
    assert batch.per_token == {"sampling_logprobs", "turns"}


@pytest.mark.parametrize("mask", [None, np.array([True, True, True])])
def test_packing_without_holes_copies_nothing(mask: Any) -> None:
    values = float32(-1, -2, -3)
    batch = RaggedBatch.from_positions(int64(2, 1), {"logprobs": values}, {}, mask)
    assert batch.columns["logprobs"] is values
    assert batch.positions is None
    assert batch.offsets.tolist() == [0, 2, 3]


def test_a_mask_of_zeros_leaves_sequences_without_tokens() -> None:
    batch = RaggedBatch.from_positions(int64(2, 1), {"logprobs": float32(-1, -2, -3)}, {}, np.zeros(3, bool))
    assert (batch.tokens, batch.sequences, batch.offsets.tolist()) == (0, 2, [0, 0, 0])


def test_a_batch_may_have_no_sequence() -> None:
    batch = RaggedBatch.from_positions(int64(), {"logprobs": float32()}, {"advantages": float32()})
    assert (batch.tokens, batch.sequences) == (0, 0)


def test_as_many_tokens_as_sequences_are_told_apart() -> None:
    batch = RaggedBatch.from_positions(int64(1, 1), {"advantages": float32(1, 2)}, {"rewards": float32(3, 4)})
    assert batch.per_token == {"advantages"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"offsets": int64(1, 2)}, "offsets"),
        ({"offsets": int64(0, 2, 1), "lengths": int64(2, 1)}, "offsets"),
        ({"lengths": int64(2, 0)}, "lengths has 2 entries for 1"),
        ({"columns": {"logprobs": float32(-1)}}, "logprobs has 1 entries"),
        ({"columns": {"rewards": float32(1, 2)}}, "rewards has 2 entries"),
        ({"columns": {"logprobs": np.zeros((2, 1), F32)}}, "one entry per token"),
        ({"columns": {"logprobs": int64(1, 2)}}, "floating dtype"),
        ({"columns": {"logprobs": float32(1, 2), "old_logprobs": np.zeros(2)}}, "share one floating dtype"),
        ({"positions": int64(0)}, "positions has 1 entries"),
    ],
)
def test_what_does_not_fit_together_is_refused(arguments: dict[str, Any], message: str) -> None:
    sound: dict[str, Any] = {
        "offsets": int64(0, 2),
        "columns": {"logprobs": float32(-1, -2)},
        "lengths": int64(2),
        "per_token": frozenset({"logprobs", "old_logprobs"}),
    }
    assert RaggedBatch(**sound).tokens == 2
    with pytest.raises(ValueError, match=message):
        RaggedBatch(**(sound | arguments))
