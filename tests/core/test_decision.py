"""The sums of decisions, counted in tokens whether they are on tokens or on whole sequences."""

import math

import pytest
import torch
from offpolicy_monitor.core.corrections import Anchor, Decided, Group, Placed, decide
from offpolicy_monitor.core.decision import (
    DROP_SUMS,
    differing,
    drop_sums,
    drop_terms,
    dropped_in_sequences,
    split_sums,
    weight_sums,
)
from offpolicy_monitor.core.gap import Gaps
from offpolicy_monitor.methods import parse_row
from offpolicy_monitor.methods.rule import Band, Drop

from tests.core.gaps import gap_of_log_ratios

#: d of two sequences of two and of one token.
D = [[1.0, -2.0], [0.5]]


def k3(d: float) -> float:
    return math.expm1(d) - d


def decided_of(low: list[bool], high: list[bool], whole: bool = False) -> Decided:
    marked = [below or above for below, above in zip(low, high, strict=True)]
    rules, counts = (Placed(Drop((Band("log_ratio"),)), 0),), torch.tensor([[2.0, 1.0]], dtype=torch.float64)
    group = Group(rules, torch.tensor([[marked], [low]]), counts=counts if whole else None)
    return Decided(None, group) if whole else Decided(group, None)


def found_of(gaps: Gaps, decided: Decided) -> dict[str, list[float]]:
    """What each rule drops and keeps."""
    terms = drop_terms(gaps, decided, dropped_in_sequences(gaps, decided))
    sides = torch.cat([drop_sums(gaps, group) for group in decided.groups])
    found = {name: sides[:, side, index].tolist() for name, (side, index) in DROP_SUMS.items()}
    return found | {name: values.double().sum(-1).tolist() for name, values in terms.items()}


def sums_of(gap: Gaps, decided: Decided) -> dict[str, float]:
    return {name: values[0] for name, values in found_of(gap, decided).items()}


def test_what_is_kept_of_a_sum_that_the_dropped_dominate_is_added_up_anew() -> None:
    gap = gap_of_log_ratios([[70.0, 0.5], [1e-3]], dtype=torch.float64)
    sums = sums_of(gap, decided_of([True, False, False], [False] * 3))
    assert sums["k3_kept"] == pytest.approx(k3(0.5) + k3(1e-3), rel=1e-9)
    assert gap.columns.k3[0].tolist()[0] == pytest.approx(k3(70.0), rel=1e-12), "the gap's own column was changed"


def test_dropped_tokens_are_counted_by_side_and_by_sequence() -> None:
    gap = gap_of_log_ratios(D, [-3.0, 0.5], torch.float64)
    sums = sums_of(gap, decided_of([False, True, False], [False, False, True]))
    assert sums == pytest.approx(
        {
            "masked_tokens": 2, "masked_low_tokens": 1,
            "masked_sequences": 1, "touched_sequences": 2, "masked_advantage_mass": 3.5,
            "k3_kept": k3(1.0), "k3_masked": k3(-2.0) + k3(0.5),
            "log_ratio_square_kept": 1.0, "log_ratio_square_masked": 4.25,
        },
        rel=1e-12,
    )  # fmt: skip


def test_a_dropped_sequence_counts_all_its_tokens() -> None:
    gap = gap_of_log_ratios(D, [[-3.0, 1.0], [0.5]], torch.float64)
    sums = sums_of(gap, decided_of([True, False], [False, False], whole=True))
    assert sums == pytest.approx(
        {
            "masked_tokens": 2, "masked_low_tokens": 2,
            "masked_sequences": 1, "touched_sequences": 1, "masked_advantage_mass": 4.0,
            "k3_kept": k3(0.5), "k3_masked": k3(1.0) + k3(-2.0),
            "log_ratio_square_kept": 0.25, "log_ratio_square_masked": 5.0,
        },
        rel=1e-12,
    )  # fmt: skip
    assert float(gap.sequence_mass.sum()) == 4.5


@pytest.mark.parametrize("whole", [False, True])
def test_nothing_dropped_keeps_everything(whole: bool) -> None:
    gap = gap_of_log_ratios(D, dtype=torch.float64)
    nothing = [False] * (2 if whole else 3)
    sums = sums_of(gap, decided_of(nothing, nothing, whole))
    assert [sums[name] for name in ("masked_tokens", "masked_sequences", "touched_sequences", "k3_masked")] == [0] * 4
    assert sums["k3_kept"] == pytest.approx(k3(1.0) + k3(-2.0) + k3(0.5), rel=1e-12)
    assert sums["log_ratio_square_kept"] == 5.25


def test_weights_are_summed_over_tokens() -> None:
    gap = gap_of_log_ratios([[math.log(4.0), math.log(2.0)], [math.log(0.5)]], dtype=torch.float64)
    row = parse_row({"method": "truncate", "level": "sequence", "upper": 2.0})
    (group,) = decide(gap, [Placed(row.rule, 0)]).groups
    found, largest = weight_sums(gap, group)
    # w = min(r, 2) of the products 8 and 0.5, over tokens: 2, 2, 0.5; w - 1: 1, 1, -0.5
    expected = {"weight": 4.5, "weight_square": 8.25, "weight_excess": 1.5, "weight_excess_square": 2.25}
    assert {name: float(terms.sum()) for name, terms in found.items()} == pytest.approx(
        {**expected, "truncated_tokens": 2.0}, rel=1e-12
    )
    assert largest.tolist() == [2.0]


def test_rows_of_several_gaps_are_summed_each_over_its_own() -> None:
    mu, old, pi = [0.0, 0.0], [1.0, 0.1], [1.0, 2.1]  # mismatch 1, 0.1; staleness 0, 2
    parts = gap_of_log_ratios([[0.0, 0.0]]).segments
    gaps = Gaps(torch.tensor([mu, old, pi], dtype=torch.float64), ((1, 0), (2, 1)), parts)
    rule = parse_row({"method": "mask", "level": "token", "upper": math.exp(0.5)}).rule
    decided = decide(gaps, [Placed(rule, 1), Placed(rule, 0), Placed(rule, 1)])
    kept = found_of(gaps, decided)
    assert kept["log_ratio_square_masked"] == pytest.approx([4.0, 1.0, 4.0], rel=1e-12)
    assert kept["log_ratio_square_kept"] == pytest.approx([0.0, 0.01, 0.0], rel=1e-12, abs=1e-15)


def test_sums_of_what_is_marked_and_of_the_rest_are_the_same_by_a_product_of_matrices() -> None:
    source = torch.Generator().manual_seed(0)
    marks, values = torch.rand(5, 300, generator=source) < 0.3, torch.rand(1, 3, 300, generator=source)
    expected = torch.stack([marks, ~marks], 1).double() @ values[0].double().T
    assert torch.allclose(split_sums(marks, values, [0] * 5), expected, rtol=1e-12)


def test_tokens_that_two_decisions_differ_on_are_counted() -> None:
    rule = Drop((Band("log_ratio"),))
    rules = Placed(rule, 0, row=7), Placed(rule, 0, row=7, anchor=Anchor.THERE)
    nothing = [[False] * 3, [False] * 3]
    of_tokens = Group(rules, torch.tensor([[[True, False, True], [True, True, False]], nothing]))
    marks, sizes = torch.tensor([[[True, False], [False, False]], [[False] * 2] * 2]), torch.tensor([[2.0, 1.0]])
    of_sequences = Group(rules, marks, counts=sizes.double())
    rows, counts = differing(Decided(of_tokens, of_sequences))
    assert (rows, counts.tolist()) == ((7, 7), [2.0, 2.0])
