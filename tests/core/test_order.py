"""Running sums and orders stay within their sequences."""

import numpy as np
import pytest
import torch
from offpolicy_monitor.core.order import ascending, sums_before

from tests.core.gaps import segments


@pytest.mark.parametrize("first", [1.0, 1e17, 1e34])
def test_what_comes_before_a_token_is_of_its_own_sequence_alone(first: float) -> None:
    lengths = [1, 1000, 3, 1, 77]
    values = [np.array([first])] + [np.random.default_rng(size).random(size) for size in lengths[1:]]
    found = sums_before(torch.from_numpy(np.concatenate(values)), segments(*lengths)).numpy()
    wanted = np.concatenate([np.cumsum(own) - own for own in values])
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    assert found[[0, 1, 1001, 1004, 1005]].tolist() == [0.0] * 5


def test_what_comes_before_is_found_of_several_rows_as_of_each() -> None:
    rows = torch.from_numpy(np.random.default_rng(0).random((2, 9)))
    parts = segments(1, 5, 3)
    assert torch.equal(sums_before(rows, parts), torch.stack([sums_before(row, parts) for row in rows]))


def test_values_ascend_within_their_sequence() -> None:
    values = torch.tensor([3.0, 1.0, 2.0, -1.0, 0.0, -2.0])
    assert ascending(values, segments(3, 1, 2)).tolist() == [1.0, 2.0, 3.0, -1.0, -2.0, 0.0]
