"""Differences of log-probs that were computed once more: literals worked out by hand, and what the door refuses."""

import math

import pytest
import torch
from offpolicy_monitor.core.rescored import SUMMED, difference, difference_sums


def test_a_difference_is_exact_in_float64_and_0_where_a_token_is_not_valid() -> None:
    above, below = torch.tensor([-1.0, -16777216.0, 0.0]), torch.tensor([-1.5, -1.0, -3.0])
    valid = torch.tensor([True, True, False])
    assert difference(above, below).tolist() == [0.5, -16777215.0, 3.0]
    assert difference(above, below, valid).tolist() == [0.5, -16777215.0, 0.0]


def test_sums_are_of_d_its_size_its_square_k3_and_what_is_not_0() -> None:
    ln2 = math.log(2)
    found = difference_sums(torch.tensor([[ln2, 0.0, -ln2], [0.0, 0.0, 1000.0]], dtype=torch.float64))
    assert SUMMED == ("log_ratio", "log_ratio_abs", "log_ratio_square", "k3", "changed_tokens")
    # k3: 2 - 1 - ln 2 and 0.5 - 1 + ln 2; beyond 80 the exponential alone is clamped
    expected = [[0.0, 1000.0], [2 * ln2, 1000.0], [2 * ln2**2, 1e6], [0.5, math.expm1(80) - 1000], [2.0, 1.0]]
    for sums, literal in zip(found.tolist(), expected, strict=True):
        assert sums == pytest.approx(literal, rel=1e-14)


def test_k3_keeps_five_digits_down_to_a_billionth() -> None:
    d = torch.full((1, 7), 4.5e-5, dtype=torch.float64)
    assert float(difference_sums(d)[3]) == pytest.approx(7 * (4.5e-5**2 / 2 + 4.5e-5**3 / 6), rel=1e-9)


@pytest.mark.parametrize(
    ("above", "below", "valid", "error"),
    [
        (torch.zeros(3), torch.zeros(2), None, ValueError),
        (torch.zeros(3, 1), torch.zeros(3, 1), None, ValueError),
        (torch.zeros(3), torch.zeros(3, dtype=torch.int64), None, TypeError),
        (torch.zeros(3), torch.zeros(3), torch.ones(2, dtype=torch.bool), ValueError),
        (torch.zeros(3), torch.zeros(3), torch.ones(3), TypeError),
    ],
)
def test_what_does_not_fit_is_refused(
    above: torch.Tensor, below: torch.Tensor, valid: torch.Tensor | None, error: type[Exception]
) -> None:
    with pytest.raises(error):
        difference(above, below, valid)


@pytest.mark.parametrize(("d", "error"), [(torch.zeros(3).double(), ValueError), (torch.zeros(1, 3), TypeError)])
def test_sums_are_of_float64_rows(d: torch.Tensor, error: type[Exception]) -> None:
    with pytest.raises(error):
        difference_sums(d)
