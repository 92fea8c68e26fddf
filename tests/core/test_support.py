"""Log-probs on a sampler's support: literals worked out by hand, and what the door refuses."""

import math

import pytest
import torch
from offpolicy_monitor.core.support import SUPPORT_SUMS, on_support, support_sums


def test_a_log_prob_on_its_support_is_less_the_log_of_the_mass() -> None:
    log_prob, log_mass = torch.tensor([-1.5, -3.0]), torch.tensor([-0.5, -0.25])
    assert on_support(log_prob, log_mass).tolist() == [-1.0, -2.75]
    assert on_support(log_prob, None).tolist() == [-1.5, -3.0]


def test_sums_are_over_valid_tokens() -> None:
    ln2 = math.log(2)
    above = torch.tensor([[-ln2, 0.0, 0.02, 5.0]], dtype=torch.float64)
    below = torch.tensor([[0.0, -ln2, 0.02, -5.0]], dtype=torch.float64)
    log_mass = torch.tensor([[0.0, -ln2, -ln2, 3.0]], dtype=torch.float64)
    found = support_sums(above, below, log_mass, torch.tensor([[True, True, True, False]]))[:, 0]
    expected = [0.0, 2 * ln2, 2 * ln2**2, 0.5, 0.5 + 2 + 1, 1 + 0.5 + 0.5, 1]
    assert dict(zip(SUPPORT_SUMS, found.tolist(), strict=True)) == pytest.approx(
        dict(zip(SUPPORT_SUMS, expected, strict=True)), rel=1e-14, abs=1e-15
    )


@pytest.mark.parametrize(
    ("log_prob", "log_mass", "error"),
    [
        (torch.zeros(3), torch.zeros(2), ValueError),
        (torch.zeros(3, 1), None, ValueError),
        (torch.zeros(3), torch.zeros(3, dtype=torch.int64), TypeError),
    ],
)
def test_what_does_not_fit_is_refused(
    log_prob: torch.Tensor, log_mass: torch.Tensor | None, error: type[Exception]
) -> None:
    with pytest.raises(error):
        on_support(log_prob, log_mass)


def test_sums_are_of_rows_of_one_shape() -> None:
    rows = torch.zeros(2, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match="below"):
        support_sums(rows, rows[:1], rows)
    with pytest.raises(TypeError, match="valid"):
        support_sums(rows, rows, rows, rows)
