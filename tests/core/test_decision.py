"""The sums of a decision, counted in tokens whichever kind of decision it is."""

import math

import pytest
import torch
from offpolicy_monitor.core.decision import (
    Decision,
    SequenceDrops,
    TokenDrops,
    Weights,
    decision_sums,
    keep_tokens,
    token_weights,
)
from offpolicy_monitor.core.gap_sums import to_floats

from tests.core.gaps import gap_of_log_ratios

#: d of two sequences of two and of one token.
D = [[1.0, -2.0], [0.5]]
NOWHERE = torch.empty(0, dtype=torch.int64)


def float64(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_what_is_kept_of_a_sum_that_the_dropped_dominate_is_added_up_anew() -> None:
    gap = gap_of_log_ratios([[70.0, 0.5], [1e-3]], dtype=torch.float64)
    sums = to_floats(decision_sums(gap, TokenDrops(NOWHERE, torch.tensor([0])), two_sided=False))
    assert sums["k3_kept"] == pytest.approx(k3(0.5) + k3(1e-3), rel=1e-9)
    assert gap.columns.k3.tolist()[0] == pytest.approx(k3(70.0), rel=1e-12), "the gap's own column was changed"


def k3(d: float) -> float:
    return math.expm1(d) - d


def test_dropped_tokens_are_counted_by_side_and_by_sequence() -> None:
    low, high = torch.tensor([1]), torch.tensor([2])
    gap = gap_of_log_ratios(D, [-3.0, 0.5], torch.float64)
    sums = to_floats(decision_sums(gap, TokenDrops(low, high), two_sided=True))
    assert sums == pytest.approx(
        {
            "masked_tokens": 2, "masked_low_tokens": 1, "masked_high_tokens": 1,
            "masked_sequences": 1, "touched_sequences": 2,
            "advantage_mass": 6.5, "masked_advantage_mass": 3.5,
            "k3_kept": k3(1.0), "k3_masked": k3(-2.0) + k3(0.5),
            "log_ratio_square_kept": 1.0, "log_ratio_square_masked": 4.25,
        },
        rel=1e-12,
    )  # fmt: skip


def test_a_dropped_sequence_counts_all_its_tokens() -> None:
    gap = gap_of_log_ratios(D, [[-3.0, 1.0], [0.5]], torch.float64)
    decision = SequenceDrops(float64([1.0, 0.0]), float64([0.0, 0.0]))
    assert to_floats(decision_sums(gap, decision, two_sided=True)) == pytest.approx(
        {
            "masked_tokens": 2, "masked_low_tokens": 2, "masked_high_tokens": 0,
            "masked_sequences": 1, "touched_sequences": 1,
            "advantage_mass": 4.5, "masked_advantage_mass": 4.0,
            "k3_kept": k3(0.5), "k3_masked": k3(1.0) + k3(-2.0),
            "log_ratio_square_kept": 0.25, "log_ratio_square_masked": 5.0,
        },
        rel=1e-12,
    )  # fmt: skip


@pytest.mark.parametrize(
    "decision",
    [
        TokenDrops(NOWHERE, NOWHERE),
        SequenceDrops(float64([0.0, 0.0]), float64([0.0, 0.0])),
        Weights(float64([1.0, 1.0]), float64([0.0, 0.0]), float64([0.0, 0.0]), False),
    ],
)
def test_nothing_dropped_keeps_everything(decision: Decision) -> None:
    gap = gap_of_log_ratios(D, dtype=torch.float64)
    sums = to_floats(decision_sums(gap, decision, two_sided=False))
    assert [sums[name] for name in ("masked_tokens", "masked_sequences", "touched_sequences", "k3_masked")] == [0] * 4
    assert sums["k3_kept"] == pytest.approx(k3(1.0) + k3(-2.0) + k3(0.5), rel=1e-12)
    assert sums["log_ratio_square_kept"] == 5.25
    assert "advantage_mass" not in sums and "masked_low_tokens" not in sums
    assert keep_tokens(gap, decision).tolist() == [True] * 3


def test_a_sequences_decision_and_weight_stand_at_its_tokens() -> None:
    gap = gap_of_log_ratios(D)
    assert keep_tokens(gap, SequenceDrops(float64([0.0, 1.0]), float64([0.0, 0.0]))).tolist() == [True, True, False]
    weights = token_weights(gap, Weights(float64([2.0, 0.5]), float64([1.0, -0.5]), float64([0.0, 0.0]), False))
    assert weights is not None and weights.tolist() == [2.0, 2.0, 0.5]
    assert token_weights(gap, TokenDrops(NOWHERE, NOWHERE)) is None


def test_weights_are_summed_over_tokens() -> None:
    gap = gap_of_log_ratios(D)
    weights = Weights(float64([2.0, 0.5]), float64([1.0, -0.5]), float64([1.0, 0.0]), False)
    sums = to_floats(decision_sums(gap, weights, two_sided=False))
    assert (sums["weight"], sums["weight_square"]) == (4.5, 8.25)
    # w - 1 over tokens: 1, 1, -0.5
    assert (sums["weight_excess"], sums["weight_excess_square"]) == (1.5, 2.25)
    assert (sums["weight_max"], sums["truncated_tokens"]) == (2.0, 2.0)
