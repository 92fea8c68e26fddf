"""Advantages stand at tokens, and zero of either sign is neither positive nor negative."""

import pytest
import torch
from offpolicy_monitor.core.advantages import Advantages

from tests.core.gaps import segments


def advantages(values: list[float], per_token: bool, *lengths: int) -> Advantages:
    return Advantages(torch.tensor(values), per_token, segments(*lengths))


def test_a_sequences_advantage_stands_at_each_of_its_tokens() -> None:
    own = advantages([-2.0, 3.0], False, 1, 2)
    assert own.of_tokens.tolist() == [-2.0, 3.0, 3.0]
    assert own.groups.tolist() == [0, 2]
    assert own.token_groups.tolist() == [0, 2, 2]


def test_an_advantage_per_token_stays_where_it_is() -> None:
    own = advantages([-2.0, 3.0, -1.0], True, 1, 2)
    assert own.of_tokens.tolist() == [-2.0, 3.0, -1.0]
    assert own.groups.tolist() == own.token_groups.tolist() == [0, 2, 0]


def test_zero_of_either_sign_is_neither_positive_nor_negative() -> None:
    own = advantages([0.0, -0.0, 1e-8, -1e-8], False, 1, 1, 1, 1)
    assert own.groups.tolist() == [1, 1, 2, 0]


def test_as_many_sequences_as_tokens_are_told_apart_by_what_was_said() -> None:
    assert advantages([1.0, -1.0], True, 1, 1).of_tokens.tolist() == [1.0, -1.0]
    assert advantages([1.0, -1.0], False, 1, 1).of_tokens.tolist() == [1.0, -1.0]


@pytest.mark.parametrize(("per_token", "count"), [(True, 2), (False, 3)])
def test_a_wrong_number_of_advantages_is_refused(per_token: bool, count: int) -> None:
    with pytest.raises(ValueError, match="advantages has shape"):
        advantages([1.0] * count, per_token, 1, 2)


def test_advantages_of_another_rank_or_dtype_are_refused() -> None:
    with pytest.raises(ValueError, match="advantages has shape"):
        Advantages(torch.zeros(1, 2), True, segments(2))
    with pytest.raises(TypeError, match=r"is torch\.int64"):
        Advantages(torch.zeros(2, dtype=torch.int64), True, segments(2))
