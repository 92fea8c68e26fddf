"""Segments sum, bound and spread over sequences of unequal length."""

import numpy as np
import pytest
import torch
from offpolicy_monitor.core.ragged import Segments, total

from tests.core.gaps import CPU, segments

VALUES = [1.0, -2.0, 4.0, 0.5, 8.0, -16.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_and_extremes_of_unequal_sequences(dtype: torch.dtype) -> None:
    parts, values = segments(1, 3, 2), torch.tensor(VALUES, dtype=dtype)
    assert (parts.tokens, parts.sequences, parts.counts.tolist()) == (6, 3, [1.0, 3.0, 2.0])
    for got, expected in (
        (parts.sum(values), [1.0, 2.5, -8.0]),
        (parts.min(values), [1.0, -2.0, -16.0]),
        (parts.max(values), [1.0, 4.0, 8.0]),
    ):
        assert got.dtype == torch.float64
        assert got.tolist() == expected


def test_float32_values_are_added_up_in_float64() -> None:
    values = torch.tensor([1e8] + [1.0] * 1000, dtype=torch.float32)
    assert segments(1001).sum(values).tolist() == [100001000.0]
    assert float(total(values)) == 100001000.0


def test_values_of_sequences_stand_at_their_tokens() -> None:
    assert segments(1, 3, 2).spread(torch.tensor([5.0, 6.0, 7.0])).tolist() == [5.0, 6.0, 6.0, 6.0, 7.0, 7.0]


def test_rows_of_values_are_reduced_row_by_row() -> None:
    parts, values = segments(1, 3, 2), torch.tensor([VALUES, [-x for x in VALUES]])
    assert parts.sum(values).tolist() == [[1.0, 2.5, -8.0], [-1.0, -2.5, 8.0]]
    assert parts.max(values).tolist() == [[1.0, 4.0, 8.0], [-1.0, 2.0, 16.0]]
    assert parts.sum(torch.stack([values, values * 2]))[1].tolist() == [[2.0, 5.0, -16.0], [-2.0, -5.0, 16.0]]
    assert parts.spread(parts.sum(values)).tolist()[1] == [-1.0, -2.5, -2.5, -2.5, 8.0, 8.0]


def test_marks_are_counted() -> None:
    marks = torch.tensor([[True, False, False, True, True, True], [False] * 6])
    assert segments(1, 2, 3).sum(marks).tolist() == [[1.0, 0.0, 3.0], [0.0, 0.0, 0.0]]


def test_values_of_another_number_of_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="values has shape"):
        segments(1, 3, 2).sum(torch.zeros(5))


def test_one_sequence_of_one_token() -> None:
    parts, value = segments(1), torch.tensor([-3.0])
    assert parts.sum(value).tolist() == parts.min(value).tolist() == parts.max(value).tolist() == [-3.0]


@pytest.mark.parametrize("lengths", [np.array([1, 0, 2]), np.array([1.0, 2.0]), np.array([[1, 2]])])
def test_lengths_that_are_empty_or_of_another_kind_are_refused(lengths: np.ndarray) -> None:
    with pytest.raises((ValueError, TypeError), match=r"segments|lengths"):
        Segments(lengths, CPU)
