"""Tokens are counted in the cell whose edges hold both of their log-probs."""

import numpy as np
import pytest
import torch
from offpolicy_monitor.core.cells import sums_by_cell
from offpolicy_monitor.core.density import joint_tally
from offpolicy_monitor.core.histogram import Layout

#: Bins of -x: below 1/2, 1/2 to 3/4, 3/4 to 1, 1 to 3/2, 3/2 to 2, from 2 on.
LAYOUT = Layout(-1, 1, 1, torch.empty(0))
EDGES = [0.5, 0.75, 1.0, 1.5, 2.0]


def cell(x: float) -> int:
    """The bin of a log-prob, by looking at one edge after the other."""
    return sum(bool(-np.float32(x) >= edge) for edge in EDGES)


def joint_counts(policies: torch.Tensor, valid: torch.Tensor | None = None) -> torch.Tensor:
    """[C - 1, numerators, mu]."""
    [counts] = sums_by_cell(joint_tally(policies, LAYOUT, valid))
    return counts.view(len(policies) - 1, len(EDGES) + 1, -1)


def neighbours(value: float) -> list[float]:
    return [float(np.nextafter(np.float32(value), np.float32(towards))) for towards in (-np.inf, value, np.inf)]


VALUES = [
    *[value for edge in EDGES for value in neighbours(-edge)], 0.0, -0.0, 0.3, 2.5, 1e30, -1e-45, -1e-10, -0.49, -3.0,
    -1e30, -88.0,
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_pair_of_log_probs_is_counted_where_a_loop_over_the_edges_puts_it(dtype: torch.dtype) -> None:
    first = [x for x in VALUES for _ in VALUES]
    second = [y for _ in VALUES for y in VALUES]
    counts = joint_counts(torch.tensor([first, second, first], dtype=dtype))
    expected = np.zeros((2, 6, 6))
    for x, y in zip(first, second, strict=True):
        expected[0, cell(y), cell(x)] += 1
        expected[1, cell(x), cell(x)] += 1
    assert counts.dtype == torch.float64
    assert (counts.numpy() == expected).all()


def test_tokens_that_are_not_valid_are_in_no_count() -> None:
    policies = torch.tensor([[-0.1, -0.8, -5.0], [-0.6, -0.8, -1.2]])
    assert joint_counts(policies).nonzero().tolist() == [[0, 1, 0], [0, 2, 2], [0, 3, 5]]
    assert joint_counts(policies, torch.tensor([[1.0, 0.0, 0.0]])).nonzero().tolist() == [[0, 1, 0]]
    assert joint_counts(policies, torch.tensor([[False, False, True]])).nonzero().tolist() == [[0, 3, 5]]


def test_no_token_is_no_count() -> None:
    assert joint_counts(torch.zeros(2, 0)).sum() == 0
