"""Advantages stand at tokens, and zero of either sign is neither positive nor negative."""

import pytest
import torch
from offpolicy_monitor.core.advantages import Advantages

from tests.core.gaps import segments


def advantages(values: list[float], a_token: bool, *lengths: int) -> Advantages:
    return Advantages(torch.tensor(values), a_token, segments(*lengths))


def test_a_sequences_advantage_stands_at_each_of_its_tokens() -> None:
    own = advantages([-2.0, 3.0], False, 1, 2)
    assert own.at(torch.tensor([0, 1, 2])).tolist() == [-2.0, 3.0, 3.0]
    assert own.at(torch.tensor([2])).tolist() == [3.0]
    assert own.sign_groups.tolist() == [0, 2, 2]
    assert own.mass.tolist() == [2.0, 6.0]


def test_an_advantage_a_token_stays_where_it_is() -> None:
    own = advantages([-2.0, 3.0, -1.0], True, 1, 2)
    assert own.at(torch.tensor([0, 1, 2])).tolist() == [-2.0, 3.0, -1.0]
    assert own.mass.tolist() == [2.0, 4.0]
    assert own.sign_groups.tolist() == [0, 2, 0]
    assert own.sequence_sign_groups.tolist() == [0, 2]


def test_a_sequences_sign_is_that_of_the_sum_of_its_advantages() -> None:
    own = advantages([3.0, -5.0, -1.0, 1.0, 0.5], True, 2, 2, 1)
    assert own.sequence_sign_groups.tolist() == [0, 1, 2]


def test_zero_of_either_sign_is_neither_positive_nor_negative() -> None:
    own = advantages([0.0, -0.0, 1e-8, -1e-8], False, 1, 1, 1, 1)
    assert own.positive.tolist() == [0.0, 0.0, 1.0, 0.0]
    assert own.negative.tolist() == [0.0, 0.0, 0.0, 1.0]
    assert own.sign_groups.tolist() == [1, 1, 2, 0]


def test_as_many_sequences_as_tokens_are_told_apart_by_what_was_said() -> None:
    places = torch.tensor([0, 1])
    assert advantages([1.0, -1.0], True, 1, 1).at(places).tolist() == [1.0, -1.0]
    assert advantages([1.0, -1.0], False, 1, 1).at(places).tolist() == [1.0, -1.0]


@pytest.mark.parametrize(("a_token", "count"), [(True, 2), (False, 3)])
def test_a_wrong_number_of_advantages_is_refused(a_token: bool, count: int) -> None:
    with pytest.raises(ValueError, match="advantages have shape"):
        advantages([1.0] * count, a_token, 1, 2)
