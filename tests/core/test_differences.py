"""Differences of log-probs that are no gap's: literals worked out by hand, and what the doors refuse."""

import math

import pytest
import torch
from offpolicy_monitor.core.differences import SUMMED, above, difference_terms, differences, exponentials_of
from offpolicy_monitor.core.ragged import products

D64 = torch.float64
LN2 = math.log(2)


@pytest.mark.parametrize("dtype", [torch.float32, D64])
def test_rows_are_log_probs_added_and_taken_off_and_0_where_a_token_is_not_valid(dtype: torch.dtype) -> None:
    log_probs = torch.tensor([[-1.0, -16777216.0, 0.0], [-1.5, -1.0, -3.0], [-0.25, 0.0, -1.0]], dtype=dtype)
    weights = [[1, -1, 0], [1, -1, 1], [0, 0, 1]]
    found = differences(log_probs, weights)
    assert found.tolist() == [[0.5, -16777215.0, 3.0], [0.25, -16777215.0, 2.0], [-0.25, 0.0, -1.0]]
    valid = torch.tensor([[True, True, False], [False, True, True], [True, True, True]])
    assert differences(log_probs, weights, valid).tolist() == torch.where(valid, found, 0.0).tolist()


def test_a_difference_of_two_is_rounded_once() -> None:
    values = torch.rand(2, 1000, dtype=D64, generator=torch.Generator().manual_seed(1))
    assert torch.equal(differences(values, [[1, -1]])[0], values[0] - values[1])


def test_terms_are_d_its_size_its_square_k3_and_whether_it_is_not_0() -> None:
    found = difference_terms(torch.tensor([[LN2, 0.0, -LN2], [0.0, 0.0, 1000.0]], dtype=D64))
    assert SUMMED == ("log_ratio", "log_ratio_abs", "log_ratio_square", "k3", "changed_tokens")
    # k3: 2 - 1 - ln 2 and 0.5 - 1 + ln 2; beyond 80 the exponential alone is clamped
    expected = [[0.0, 1000.0], [2 * LN2, 1000.0], [2 * LN2**2, 1e6], [0.5, math.expm1(80) - 1000], [2.0, 1.0]]
    for terms, literal in zip(found, expected, strict=True):
        assert terms.sum(1).tolist() == pytest.approx(literal, rel=1e-14)


def test_k3_keeps_five_digits_down_to_a_billionth() -> None:
    d = torch.full((1, 7), 4.5e-5, dtype=D64)
    assert difference_terms(d)[3][0].tolist() == pytest.approx([4.5e-5**2 / 2 + 4.5e-5**3 / 6] * 7, rel=1e-9)


def test_exponentials_are_of_valid_tokens_and_keep_their_digits_far_below_1() -> None:
    logs = torch.tensor([[LN2, 0.0, -LN2], [-50.0, 0.0, 1000.0]], dtype=D64)
    assert exponentials_of(logs).sum(1).tolist() == pytest.approx([3.5, 1 + math.exp(80)], rel=1e-14)
    valid = torch.tensor([[True, False, True], [True, False, False]])
    assert exponentials_of(logs, valid).sum(1).tolist() == pytest.approx([2.5, math.exp(-50)], rel=1e-14)


def test_tokens_above_the_limit_of_their_row_are_marked() -> None:
    rows = torch.tensor([[0.0, 0.01, 0.02, -1.0], [0.0, 0.01, 0.02, -1.0]], dtype=D64)
    assert above(rows, [0.0, 0.01]).tolist() == [[False, True, True, False], [False, False, True, False]]


def test_products_are_of_any_two_rows() -> None:
    rows = torch.tensor([[1.0, 2.0, 3.0], [-1.0, 0.5, 0.0]], dtype=D64)
    assert products(rows).tolist() == [[14.0, 0.0], [0.0, 1.25]]


@pytest.mark.parametrize(
    ("log_probs", "valid", "error"),
    [
        (torch.zeros(3), None, ValueError),
        (torch.zeros(3, 4), None, ValueError),
        (torch.zeros(2, 4, dtype=torch.int64), None, TypeError),
        (torch.zeros(2, 4), torch.ones(2, 4, dtype=torch.bool), ValueError),
        (torch.zeros(2, 4), torch.ones(1, 4), TypeError),
    ],
)
def test_log_probs_are_as_many_as_weights_and_marks_as_rows(
    log_probs: torch.Tensor, valid: torch.Tensor | None, error: type[Exception]
) -> None:
    with pytest.raises(error):
        differences(log_probs, [[1, -1]], valid)


def test_limits_are_as_many_as_rows() -> None:
    with pytest.raises(ValueError, match="logs"):
        above(torch.zeros(2, 3, dtype=D64), [0.0])
