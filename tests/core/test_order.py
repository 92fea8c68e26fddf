"""Running sums and orders stay within their sequences."""

import numpy as np
import pytest
import torch
from offpolicy_monitor.core.order import ascending, counts_before, sums_before

from tests.core.gaps import segments


@pytest.mark.parametrize("first", [1.0, 1e17, 1e34])
def test_what_comes_before_a_token_is_of_its_own_sequence_alone(first: float) -> None:
    lengths = [1, 1000, 3, 1, 77]
    values = [np.array([first])] + [np.random.default_rng(size).random(size) for size in lengths[1:]]
    found = sums_before(torch.from_numpy(np.concatenate(values)), segments(*lengths), 1.0).numpy()
    wanted = np.concatenate([np.cumsum(own) - own for own in values])
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    assert found[[0, 1, 1001, 1004, 1005]].tolist() == [0.0] * 5


def test_what_comes_before_is_found_of_several_rows_as_of_each() -> None:
    rows = torch.from_numpy(np.random.default_rng(0).random((2, 9)))
    parts = segments(1, 5, 3)
    assert torch.equal(sums_before(rows, parts, 1.0), torch.stack([sums_before(row, parts, 1.0) for row in rows]))


@pytest.mark.parametrize("scale", [0.0, 1e-9, 1e-6, 1.0])
def test_what_comes_before_has_its_digits_whatever_the_scale(scale: float) -> None:
    values = np.random.default_rng(1).random(1000) ** 8 * scale
    found = sums_before(torch.from_numpy(np.append(values, 1.0)), segments(1000, 1), 1024.0).numpy()
    np.testing.assert_allclose(found[:-1], np.cumsum(values) - values, rtol=1e-12, atol=1e-24)


def test_what_is_too_large_changes_nothing_before_it_and_counts_as_the_most() -> None:
    values = torch.tensor([0.25, 0.5, 1e34, 0.125, 0.5], dtype=torch.float64)
    assert sums_before(values, segments(4, 1), 8.0).tolist() == [0.0, 0.25, 0.75, 8.75, 0.0]


def test_marked_tokens_are_counted_within_their_sequence() -> None:
    marks = torch.tensor([[True, True, False, True, False, True], [False, True, True, True, True, True]])
    assert counts_before(marks, segments(4, 2)).tolist() == [[0, 1, 2, 2, 0, 0], [0, 0, 1, 2, 0, 1]]
    assert segments(4, 2).indices.tolist() == [0, 1, 2, 3, 0, 1]


def test_values_ascend_within_their_sequence() -> None:
    values = torch.tensor([3.0, 1.0, 2.0, -1.0, 0.0, -2.0])
    assert ascending(values, segments(3, 1, 2)).tolist() == [1.0, 2.0, 3.0, -1.0, -2.0, 0.0]
    rows = torch.stack([values, values.flip(0)])
    assert ascending(rows, segments(3, 1, 2)).tolist() == [[1, 2, 3, -1, -2, 0], [-2, -1, 0, 2, 1, 3]]
