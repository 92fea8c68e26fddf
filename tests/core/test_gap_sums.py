"""The derived columns and the sums of a gap on hand-made tokens."""

import math

import pytest
import torch
from offpolicy_monitor.core.gap import Gaps
from offpolicy_monitor.core.gap_sums import cross_terms, extremes, sequence_terms

from tests.core.gaps import gap_of, gap_of_log_ratios, segments

LN2 = math.log(2.0)


def found_of(gaps: Gaps) -> dict[str, torch.Tensor]:
    """All sums and extremes, [G] each; squares are about 0."""
    ends, terms = extremes(gaps), sequence_terms(gaps).items()
    added = {name: values.sum(-1, dtype=torch.float64) for name, values in terms}
    return {**gaps.columns.totals, **added, **ends["min"], **ends["max"]}


def sums_of(gaps: Gaps) -> dict[str, float]:
    """Those of one gap."""
    return {name: float(values[0]) for name, values in found_of(gaps).items()}


def test_token_sums_of_known_probabilities() -> None:
    # p = 1/2, 1/4, 1/8; q = 1/4, 1/4, 1/4: r = 2, 1, 1/2
    a, b = [[-LN2, -2 * LN2], [-3 * LN2]], [[-2 * LN2, -2 * LN2], [-2 * LN2]]
    sums = sums_of(gap_of(a, b, None, torch.float64))
    expected = {
        "log_ratio": 0.0,
        "log_ratio_abs": 2 * LN2,
        "log_ratio_square": 2 * LN2**2,
        "log_ratio_min": -LN2,
        "log_ratio_max": LN2,
        "k3": 1 - LN2 + LN2 - 0.5,
        "k3_reverse": LN2 - 0.5 + 1 - LN2,
        "js": 2 * math.log((2**0.5 + 0.5**0.5) / 2),
        "multiplicative_excess": 2.0,
        "weight_excess": 0.5,
        "weight_excess_square": 1.25,
        "changed_tokens": 2.0,
        "clamped_tokens": 0.0,
        "probability_diff": 0.375,
        "probability_diff_square": 0.078125,
        "probability_diff_max": 0.25,
        "p": 0.875,
        "q": 0.75,
        "p_square": 0.328125,
        "q_square": 0.1875,
        "p_q": 0.21875,
    }
    assert {name: sums[name] for name in expected} == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_tail_and_clamp_are_strict() -> None:
    d = [[LN2, -LN2, LN2 * (1 + 1e-9), 80.0, -80.0, 80.5, -1e6]]
    sums = sums_of(gap_of_log_ratios(d, dtype=torch.float64))
    assert sums["tail_tokens"] == 5
    assert sums["clamped_tokens"] == 2


def test_weights_are_clipped_at_twenty_and_not_counted_as_clamped() -> None:
    sums = sums_of(gap_of_log_ratios([[30.0, -30.0]], dtype=torch.float64))
    assert sums["weight_excess"] == pytest.approx(math.expm1(20.0) + math.expm1(-20.0), rel=1e-14)
    assert sums["weight_excess_square"] == pytest.approx(math.expm1(20.0) ** 2 + math.expm1(-20.0) ** 2, rel=1e-14)
    assert sums["clamped_tokens"] == 0


def test_the_two_zeros_are_equal_bitwise_enough_to_be_exact() -> None:
    sums = sums_of(gap_of([[0.0, -0.0, -1.0]], [[-0.0, 0.0, -1.0000001]]))
    assert (sums["tokens"], sums["changed_tokens"]) == (3, 1)


def test_sequence_sums_of_known_sequences() -> None:
    # d = log 2, log 8 (L = log 4, D = log 16) and d = -log 4
    a, b = [[-LN2, -LN2], [-3 * LN2]], [[-2 * LN2, -4 * LN2], [-LN2]]
    sums = sums_of(gap_of(a, b, None, torch.float64))
    expected = {
        "sequence_log_ratio_abs": 4 * LN2,
        "sequence_k3": (2 - 1 - LN2 + 8 - 1 - 3 * LN2) / 2 + 0.25 - 1 + 2 * LN2,
        "log_geometric": 0.0,
        "log_geometric_abs": 4 * LN2,
        "log_geometric_min": -2 * LN2,
        "log_geometric_max": 2 * LN2,
        "geometric": 4 + 0.25,
        "geometric_square": 16 + 0.0625,
        "geometric_excess": 3 - 0.75,
        "geometric_excess_square": 9 + 0.5625,
        "inverse_geometric": 0.25 + 4,
        "log_product": 2 * LN2,
        "log_product_min": -2 * LN2,
        "log_product_max": 4 * LN2,
        "product": 16 + 0.25,
        "product_square": 256 + 0.0625,
        "product_excess": 15 - 0.75,
        "product_excess_square": 225 + 0.5625,
        "perplexity_numerator": 2 + 8,
        "perplexity_denominator": 8 + 2,
        "log_perplexity_numerator": 4 * LN2,
        "log_perplexity_denominator": 4 * LN2,
    }
    assert {name: sums[name] for name in expected} == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_cross_terms_pair_the_same_tokens() -> None:
    mu, old, pi = [0.0, 0.0], [1.0, 2.0], [1.5, -1.0]  # mismatch 1, 2; staleness 0.5, -3
    pairs = ((1, 0), (2, 1), (2, 0))
    gaps = Gaps(torch.tensor([mu, old, pi]), pairs, segments(2), crossed=(0, 1))
    sums = {name: float(value.sum()) for name, value in cross_terms(gaps).items()}
    assert sums == {"tokens": 2.0, "mismatch_square": 5.0, "staleness_square": 9.25, "mismatch_staleness": -5.5}
    assert gaps.product.tolist() == [0.5, -6.0]
    apart = Gaps(torch.tensor([mu, old, pi]), pairs, segments(2))
    assert cross_terms(apart) == {}
    with pytest.raises(ValueError, match="two gaps"):
        _ = apart.product


def test_a_token_that_is_not_valid_is_in_no_sum_of_its_gap() -> None:
    mu, old, pi = [-1.0, 0.0, -1.0], [-2.0, -2.0, 0.0], [-1.5, -1.5, -1.5]  # 0 is what was not finite
    valid = torch.tensor([[True, False, False], [True, True, False], [True, False, True]])
    holed = Gaps(torch.tensor([mu, old, pi]), ((1, 0), (2, 1), (2, 0)), segments(2, 1), valid=valid)
    packed = [
        Gaps(torch.tensor([[-1.0], [-2.0]]), ((1, 0),), segments(1)),
        Gaps(torch.tensor([[-2.0, -2.0], [-1.5, -1.5]]), ((1, 0),), segments(2)),
        Gaps(torch.tensor([[-1.0, -1.0], [-1.5, -1.5]]), ((1, 0),), segments(1, 1)),
    ]
    got = found_of(holed)
    for gap, alone in enumerate(packed):
        for name, value in sums_of(alone).items():
            assert float(got[name][gap]) == pytest.approx(value, rel=1e-12, abs=1e-15), (gap, name)


def test_squares_are_about_a_centre_and_of_valid_tokens() -> None:
    valid = torch.tensor([[True, True, False]])
    centres = torch.tensor([0.5], dtype=torch.float64)
    gaps = Gaps(torch.tensor([[0.0] * 3, [1.0, 3.0, 9.0]]), ((1, 0),), segments(3), valid=valid, centres=centres)
    totals = gaps.columns.totals
    assert (totals["log_ratio_apart"].item(), totals["log_ratio_apart_square"].item()) == (3.0, 0.25 + 6.25)


def test_policies_that_do_not_fit_the_sequences_are_refused() -> None:
    with pytest.raises(ValueError, match="policies has shape"):
        Gaps(torch.zeros(2, 2), ((1, 0),), segments(1, 2))
    with pytest.raises(ValueError, match="policies has shape"):
        Gaps(torch.zeros(3), ((1, 0),), segments(1, 2))
    with pytest.raises(TypeError, match=r"is torch\.float16"):
        Gaps(torch.zeros(2, 3, dtype=torch.float16), ((1, 0),), segments(1, 2))
    with pytest.raises(ValueError, match="valid has shape"):
        Gaps(torch.zeros(2, 3), ((1, 0),), segments(1, 2), valid=torch.ones(2, 3, dtype=torch.bool))


def test_the_signed_probability_difference_has_the_sign_of_the_move() -> None:
    gap = gap_of([[math.log(0.5), math.log(0.25), -1.0]], [[math.log(0.25), math.log(0.5), -1.0]], None, torch.float64)
    assert gap.columns.probability_difference[0].tolist() == pytest.approx([0.25, -0.25, 0.0], rel=1e-14)


def test_weights_of_tokens_are_clamped_at_twenty() -> None:
    sums = sums_of(gap_of_log_ratios([[25.0, -25.0]], dtype=torch.float64))
    top, bottom = math.exp(20.0), math.exp(-20.0)
    assert sums["weight"] == pytest.approx(top + bottom, rel=1e-12)
    assert sums["weight_square"] == pytest.approx(top**2 + bottom**2, rel=1e-12)
    assert sums["weight_excess"] == pytest.approx(top + bottom - 2, rel=1e-12)
    assert sums["ratio"] == pytest.approx(math.exp(25.0) + math.exp(-25.0), rel=1e-12)
