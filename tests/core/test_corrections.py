"""Each rule of the catalogue on hand-made tokens: sides, ties, levels, sign of the advantage."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from offpolicy_monitor.core.corrections import (
    Group,
    Placed,
    clip_weights,
    decide,
)
from offpolicy_monitor.core.gap import Gaps
from offpolicy_monitor.core.outward import moves_outward
from offpolicy_monitor.core.second_moment import beyond_second_moment
from offpolicy_monitor.methods import parse_row
from offpolicy_monitor.methods.rule import weight_of

from tests.core.gaps import gap_of, gap_of_log_ratios

D64 = torch.float64
LN2 = math.log(2.0)


@dataclass(frozen=True)
class Ran:
    """A rule's decision together with the gap it was made on."""

    gap: Gaps
    group: Group

    @property
    def weight(self) -> list[float]:
        found: list[float] = clip_weights(self.gap, self.group)[0][0].tolist()
        return found


class Rules:
    """The methods of the catalogue by name; a row of each with these parameters answers a Ran."""

    def __getattr__(self, name: str) -> Callable[..., Ran]:
        def run(gap: Gaps, **parameters: object) -> Ran:
            (group,) = decide(gap, [Placed(parse_row({"method": name, **parameters}).rule, 0)]).groups
            return Ran(gap, group)

        return run


rules = Rules()


def sides(ran: Ran) -> tuple[list[float], list[float]]:
    """0/1 per token, or a sequence: marked on the low, on the high side."""
    marked, low = ran.group.marks[:, 0]
    return low.double().tolist(), (marked & ~low).double().tolist()


def dropped(ran: Ran) -> list[float]:
    """0/1 per token, or a sequence; what a rule that reweights marks is what it truncates."""
    found: list[float] = ran.group.marked[0].double().tolist()
    return found


def log_ratios(ratios: list[list[float]], advantages: list[float] | list[list[float]] | None = None) -> Gaps:
    return gap_of_log_ratios([[math.log(r) for r in sequence] for sequence in ratios], advantages, D64)


def test_truncate_clips_weights_and_drops_nothing() -> None:
    decision = rules.truncate(log_ratios([[0.25, 1.0, 3.0]]), level="token", lower=0.5, upper=2.0)
    assert decision.weight == pytest.approx([0.5, 1.0, 2.0], rel=1e-15)
    assert dropped(decision) == [1.0, 0.0, 1.0]


def test_truncate_at_sequence_level_clips_the_product() -> None:
    decision = rules.truncate(log_ratios([[2.0, 4.0], [0.5, 0.25]]), level="sequence", lower=None, upper=4.0)
    assert decision.weight == pytest.approx([4.0, 0.125], rel=1e-15)
    assert dropped(decision) == [1.0, 0.0]
    assert decision.group.whole


def test_a_ratio_on_the_bound_is_not_truncated() -> None:
    decision = rules.truncate(gap_of_log_ratios([[0.0, 0.5]]), level="token", lower=1.0, upper=1.0)
    assert dropped(decision) == [0.0, 1.0]


def test_cispo_clips_to_one_minus_lower_and_one_plus_upper() -> None:
    decision = rules.cispo(log_ratios([[0.1, 0.9, 7.0]]), lower=0.5, upper=4.0)
    assert decision.weight == pytest.approx([0.5, 0.9, 5.0], rel=1e-15)
    assert dropped(decision) == [1.0, 0.0, 1.0]


def test_cispo_with_lower_above_one_has_no_lower_bound() -> None:
    decision = rules.cispo(log_ratios([[1e-9, 0.5]]), lower=3.0, upper=1.0)
    assert decision.weight == pytest.approx([1e-9, 0.5], rel=1e-6)
    assert dropped(decision) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("level", "low", "high"),
    [("token", [1.0, 0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0, 0.0]), ("geometric", [0.0, 1.0], [0.0, 0.0])],
)
def test_a_ratio_mask_tells_low_from_high(level: str, low: list[float], high: list[float]) -> None:
    gap = log_ratios([[0.4, 1.0, 1.9, 2.1], [0.3]])
    decision = rules.mask(gap, level=level, statistic="ratio", lower=0.5, upper=2.0)
    assert sides(decision) == (low, high)


def test_bounds_are_inclusive_to_keep_at_every_level() -> None:
    # d = log(2) exactly as float64, and L = D = log(2) of a sequence of one token.
    gap = gap_of_log_ratios([[LN2], [-LN2], [0.0]], dtype=D64)
    for level in ("token", "geometric", "sequence"):
        kept = rules.mask(gap, level=level, statistic="ratio", lower=0.5, upper=2.0)
        assert dropped(kept) == [0.0, 0.0, 0.0]
        tight = rules.mask(gap, level=level, statistic="ratio", lower=1.0, upper=1.0)
        assert dropped(tight) == [1.0, 1.0, 0.0]


def test_one_bound_may_be_absent() -> None:
    gap = log_ratios([[1e-6, 1.0, 9.0]])
    above = rules.mask(gap, level="token", statistic="ratio", lower=None, upper=3.0)
    below = rules.mask(gap, level="token", statistic="ratio", lower=0.5, upper=None)
    assert (dropped(above), dropped(below)) == ([0.0, 0.0, 1.0], [1.0, 0.0, 0.0])


def test_k_statistics_per_token_have_no_sides() -> None:
    gap = gap_of_log_ratios([[0.5, -0.5, 1.0]])
    k1 = rules.mask(gap, level="token", statistic="k1", lower=-0.5, upper=0.25)
    k2 = rules.mask(gap, level="token", statistic="k2", lower=None, upper=0.125)
    k3 = rules.mask(gap, level="token", statistic="k3", lower=None, upper=0.15)
    # k1 = -0.5, 0.5, -1; k2 = 0.125, 0.125, 0.5; k3 = 0.149, 0.107, 0.718
    assert dropped(k1) == [0.0, 1.0, 1.0]
    assert dropped(k2) == [0.0, 0.0, 1.0]
    assert dropped(k3) == [0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("statistic", "reduce", "figure"),
    [
        ("k1", "mean", 0.5),
        ("k1", "max", 2.0),
        ("k1", "sum", 1.0),
        ("k2", "mean", 1.25),
        ("k2", "max", 2.0),
        ("k2", "sum", 2.5),
        ("k3", "mean", (math.exp(1) - 2 + math.exp(-2) + 1) / 2),
        ("k3", "max", math.exp(-2) + 1),
        ("k3", "sum", math.exp(1) - 2 + math.exp(-2) + 1),
    ],
)
def test_k_statistics_per_sequence_are_made_by_reduce(statistic: str, reduce: str, figure: float) -> None:
    gap = gap_of_log_ratios([[1.0, -2.0]], dtype=D64)  # k1 = -1, 2; k2 = 0.5, 2; k3 = e - 2, e^-2 + 1
    just_above, just_below = figure * (1 + 1e-9), figure * (1 - 1e-9)
    for bound, expected in ((just_above, [0.0]), (just_below, [1.0])):
        decision = rules.mask(gap, level="sequence", statistic=statistic, reduce=reduce, lower=None, upper=bound)
        assert dropped(decision) == expected


def test_veto_looks_at_any_token_of_a_sequence() -> None:
    gap = log_ratios([[1.0, 1e-5, 1.0], [1.0, 2.0], [100.0]])
    assert dropped(rules.veto(gap, lower=1e-4, upper=None)) == [1.0, 0.0, 0.0]
    assert dropped(rules.veto(gap, lower=None, upper=3.0)) == [0.0, 0.0, 1.0]
    assert dropped(rules.veto(gap, lower=1e-4, upper=1.5)) == [1.0, 1.0, 1.0]


def test_veto_keeps_a_token_on_the_bound() -> None:
    gap = gap_of_log_ratios([[-LN2, LN2]], dtype=D64)
    assert dropped(rules.veto(gap, lower=0.5, upper=2.0)) == [0.0]


def test_opsm_drops_negative_sequences_whose_mean_fell_by_more_than_delta() -> None:
    d = [[-0.5, 0.0], [-0.5, 0.0], [0.5, 0.5], [-0.25, 0.0]]
    decision = rules.opsm(gap_of_log_ratios(d, [-1.0, 1.0, -1.0, -1.0]), delta=0.125)
    assert dropped(decision) == [1.0, 0.0, 0.0, 0.0]
    assert decision.group.whole


def test_opsm_with_advantages_per_token_drops_the_negative_tokens_alone() -> None:
    decision = rules.opsm(gap_of_log_ratios([[-1.0, -1.0, -1.0]], [[-1.0, 0.0, 2.0]]), delta=0.5)
    assert dropped(decision) == [1.0, 0.0, 0.0]


def test_opsm_with_delta_zero_keeps_what_did_not_fall() -> None:
    assert dropped(rules.opsm(gap_of_log_ratios([[0.0], [-0.25]], [-1.0, -1.0]), delta=0.0)) == [0.0, 1.0]


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_zero_advantage_of_either_sign_is_never_masked_by_a_sign_rule(zero: float) -> None:
    far = gap_of([[-0.01, -9.0]], [[-9.0, -0.01]], [zero])
    assert dropped(rules.opsm(far, delta=0.0)) == [0.0]
    assert sides(rules.ppo_clip(far, level="token", lower=0.1, upper=0.1)) == ([0.0, 0.0], [0.0, 0.0])
    for divergence in ("tv", "kl"):
        kept = rules.dppo(far, divergence=divergence, lower=0.1, upper=0.1, zero_advantage="keep")
        assert sides(kept) == ([0.0, 0.0], [0.0, 0.0])
        fallen = rules.dppo(far, divergence=divergence, lower=0.1, upper=0.1, zero_advantage="negative")
        assert sides(fallen) == ([0.0, 1.0], [0.0, 0.0])


def test_ppo_clip_drops_only_moves_in_the_direction_of_the_advantage() -> None:
    gap = log_ratios([[1.3, 0.7, 1.1, 0.9], [1.3, 0.7, 1.1, 0.9]], [1.0, -1.0])
    low, high = sides(rules.ppo_clip(gap, level="token", lower=0.2, upper=0.2))
    assert low == [0.0] * 4 + [0.0, 1.0, 0.0, 0.0]
    assert high == [1.0, 0.0, 0.0, 0.0] + [0.0] * 4


def test_ppo_clip_at_geometric_level_is_a_sequence_decision_or_a_token_one_by_the_advantages() -> None:
    d = [[0.2, 0.0], [-0.2, 0.0]]
    whole = rules.ppo_clip(gap_of_log_ratios(d, [1.0, -1.0]), level="geometric", lower=0.05, upper=0.05)
    assert sides(whole) == ([0.0, 1.0], [1.0, 0.0])
    own = [[1.0, -1.0], [-1.0, 0.0]]
    mixed = rules.ppo_clip(gap_of_log_ratios(d, own), level="geometric", lower=0.05, upper=0.05)
    assert sides(mixed) == ([0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0])


def test_ppo_clip_at_sequence_level_looks_at_the_product() -> None:
    gap = log_ratios([[1.1, 1.1], [1.1, 1.0]], [1.0, 1.0])
    assert sides(rules.ppo_clip(gap, level="sequence", lower=0.2, upper=0.2)) == ([0.0, 0.0], [1.0, 0.0])


def test_ppo_clip_with_lower_of_one_or_more_never_drops_on_the_low_side() -> None:
    gap = gap_of_log_ratios([[-70.0, -1.0]], [-1.0])
    for lower in (1.0, 2.5):
        assert dropped(rules.ppo_clip(gap, level="token", lower=lower, upper=0.2)) == [0.0, 0.0]


def test_dppo_tv_compares_probabilities() -> None:
    # p - q: 0.25, -0.25, 0.0625, -0.0625
    p, q = [0.5, 0.25, 0.125, 0.0625], [0.25, 0.5, 0.0625, 0.125]
    a, b = ([[math.log(x) for x in side]] for side in (p, q))
    up = rules.dppo(gap_of(a, b, [1.0], D64), divergence="tv", lower=0.2, upper=0.2, zero_advantage="keep")
    down = rules.dppo(gap_of(a, b, [-1.0], D64), divergence="tv", lower=0.2, upper=0.2, zero_advantage="keep")
    assert sides(up) == ([0.0] * 4, [1.0, 0.0, 0.0, 0.0])
    assert sides(down) == ([0.0, 1.0, 0.0, 0.0], [0.0] * 4)


def test_dppo_kl_needs_the_divergence_and_the_direction() -> None:
    # KL(0.25 || 0.5) = 0.131, KL(0.5 || 0.25) = 0.144
    a, b = [[math.log(0.5), math.log(0.25)]], [[math.log(0.25), math.log(0.5)]]
    for bound, expected in ((0.13, 1.0), (0.14, 0.0)):
        decision = rules.dppo(gap_of(a, b, [1.0], D64), divergence="kl", lower=9, upper=bound, zero_advantage="keep")
        assert sides(decision) == ([0.0, 0.0], [expected, 0.0])
    for bound, expected in ((0.14, 1.0), (0.15, 0.0)):
        decision = rules.dppo(gap_of(a, b, [-1.0], D64), divergence="kl", lower=bound, upper=9, zero_advantage="keep")
        assert sides(decision) == ([0.0, expected], [0.0, 0.0])


def test_ipo_drops_on_both_sides_whatever_the_advantage() -> None:
    a, b = ([[math.log(x) for x in side]] for side in ([0.5, 0.25, 0.3], [0.25, 0.5, 0.25]))
    assert sides(rules.ipo(gap_of(a, b, None, D64), threshold=0.1)) == ([0.0, 1.0, 0.0], [1.0, 0.0, 0.0])


def test_ipo_keeps_a_difference_exactly_on_its_threshold() -> None:
    a, b = [[0.0, -800.0]], [[-800.0, 0.0]]  # p - q is exactly 1 and -1 in float64
    assert dropped(rules.ipo(gap_of(a, b, None, D64), threshold=1.0)) == [0.0, 0.0]
    assert dropped(rules.ipo(gap_of(a, b, None, D64), threshold=0.999)) == [1.0, 1.0]


def cut_of(log_ratio: torch.Tensor, threshold: float) -> list[int]:
    """0/1 per token: what goes."""
    found: list[int] = beyond_second_moment(log_ratio.abs())(threshold).marks(0, len(log_ratio)).int().tolist()
    return found


@pytest.mark.parametrize(
    ("d", "threshold", "expected"),
    [
        ([3.0, 1.0, -4.0, 0.0], 26 / 4, [0, 0, 0, 0]),  # the mean of d^2 is exactly the threshold
        ([3.0, 1.0, -4.0, 0.0], 6.4, [0, 0, 1, 0]),
        ([3.0, 1.0, -4.0, 0.0], 10 / 3, [0, 0, 1, 0]),
        ([3.0, 1.0, -4.0, 0.0], 3.3, [1, 0, 1, 0]),
        ([3.0, 1.0, -4.0, 0.0], 0.4, [1, 1, 1, 0]),
        ([3.0, 1.0, -4.0, 0.0], 0.0, [1, 1, 1, 0]),
        ([3.0, 1.0, -4.0, 2.0], 0.5, [1, 1, 1, 1]),
        ([2.0, -2.0, 2.0], 3.9, [1, 1, 1]),
        ([2.0, 0.0, -2.0, 2.0, 0.0], 2.0, [1, 0, 0, 0, 0]),  # 4, 4 of 0, 0, 4, 4: mean 2; the earliest equal goes
        ([0.0, 0.0], 0.0, [0, 0]),
    ],
)
def test_m2po_cuts_the_fewest_largest_squares(d: list[float], threshold: float, expected: list[int]) -> None:
    assert cut_of(torch.tensor(d), threshold) == expected


def test_m2po_cuts_the_earliest_of_many_equals() -> None:
    cut = cut_of(torch.tensor([2.0, -2.0] * 500 + [0.0] * 1000), 1.0)
    # 333 squares of 4 may stay beside 1000 zeros: 4 * 333 / 1333 < 1, and one more would exceed it.
    assert cut == [1] * 667 + [0] * 1333


def test_one_ranking_serves_every_threshold() -> None:
    magnitudes = torch.tensor([3.0, 1.0, 4.0, 0.0])
    beyond = beyond_second_moment(magnitudes)
    going = [beyond(threshold).marks(0, 4).int().tolist() for threshold in (26 / 4, 6.4, 3.3, 0.4)]
    assert going == [[0, 0, 0, 0], [0, 0, 1, 0], [1, 0, 1, 0], [1, 1, 1, 0]]


def test_a_cut_holds_over_the_parts_of_a_request() -> None:
    d = [2.0, 0.0, 2.0, 2.0, 0.0]
    rule = parse_row({"method": "m2po", "threshold": 2.0}).rule
    placed = Placed(rule, 0, beyond_second_moment(torch.tensor(d))(2.0))
    parts = [decide(gap_of_log_ratios([d[first : first + 2]]), [placed], first).tokens for first in (0, 2, 4)]
    assert torch.cat([part.marked[0] for part in parts if part is not None]).int().tolist() == [1, 0, 0, 0, 0]


def test_a_cut_goes_through_equals_that_lie_in_different_parts_of_a_request() -> None:
    d = torch.tensor([2.0, -2.0] * 500 + [0.0] * 1000)
    beyond = beyond_second_moment(d.abs())(1.0)
    parts = [beyond.marks(first, min(300, len(d) - first)) for first in range(0, len(d), 300)]
    assert torch.cat(parts).int().tolist() == [1] * 667 + [0] * 1333


def test_tokens_that_are_not_valid_are_in_no_mean() -> None:
    magnitudes, valid = torch.tensor([0.0, 3.0, 0.0, 1.0]), torch.tensor([False, True, False, True])
    beyond = beyond_second_moment(magnitudes, valid)
    going = [(beyond(threshold).marks(0, 4) & valid).int().tolist() for threshold in (5.0, 4.9, 0.5)]
    assert going == [[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 1]]  # (9 + 1) / 2 is 5


def test_trm_drops_on_the_largest_k2_or_on_the_mean_of_k3() -> None:
    gap = gap_of_log_ratios([[0.5, 0.0, 0.0, 0.0], [0.25, -0.25, 0.25, -0.25], [0.01, 0.01, 0.0, 0.0]])
    # largest k2: 0.125, 0.03125, 5e-5; mean k3: 0.0372, 0.0314, 2.5e-5
    assert dropped(rules.trm(gap, max=0.1, mean=1.0)) == [1.0, 0.0, 0.0]
    assert dropped(rules.trm(gap, max=1.0, mean=0.03)) == [1.0, 1.0, 0.0]
    assert dropped(rules.trm(gap, max=0.125, mean=1.0)) == [0.0, 0.0, 0.0]


def test_kpop_takes_the_larger_of_the_two_directions() -> None:
    # KL(0.25 || 0.5) = 0.1308, KL(0.5 || 0.25) = 0.1438
    a, b = [[math.log(0.5), math.log(0.25)]], [[math.log(0.25), math.log(0.5)]]
    gap = gap_of(a, b, None, D64)
    assert dropped(rules.kpop(gap, phi=0.14)) == [1.0, 1.0]
    assert dropped(rules.kpop(gap, phi=0.15)) == [0.0, 0.0]


def test_seq_error_compares_the_mean_of_exp_of_the_absolute_log_ratio() -> None:
    gap = log_ratios([[2.0, 0.5], [1.0, 1.0]])  # mean exp|d|: 2 and 1
    assert dropped(rules.seq_error(gap, threshold=1.999)) == [1.0, 0.0]
    assert dropped(rules.seq_error(gap, threshold=2.001)) == [0.0, 0.0]
    assert dropped(rules.seq_error(gap, threshold=0.5)) == [1.0, 1.0]
    assert dropped(rules.seq_error(gap_of_log_ratios([[0.0, 0.0]]), threshold=1.0)) == [0.0]


def test_a_sign_rule_without_advantages_is_an_error() -> None:
    gap = gap_of_log_ratios([[0.0]])
    with pytest.raises(ValueError, match="advantages"):
        rules.opsm(gap, delta=0.1)
    with pytest.raises(ValueError, match="advantages"):
        rules.ppo_clip(gap, level="token", lower=0.1, upper=0.1)


def test_the_published_m2po_cuts_among_tokens_that_move_outward_and_their_mean_is_what_counts() -> None:
    d = [[0.3, 0.1, -0.9], [-0.2, 0.5], [0.7]]
    gap = gap_of_log_ratios(d, [1.0, -1.0, 0.0], D64)
    # outward: 0.3, 0.1 of A > 0 and -0.2 of A < 0, with a mean square of 0.14 / 3
    for threshold, wanted in (
        (0.05, [0, 0, 0, 0, 0, 0]),
        (0.04, [1, 0, 0, 0, 0, 0]),
        (0.024, [1, 0, 0, 1, 0, 0]),
        (0.0, [1, 1, 0, 1, 0, 0]),
    ):
        outward = moves_outward(gap.columns.log_ratio[0], gap.advantages)
        cut = beyond_second_moment(gap.columns.log_ratio_abs[0], outward)(threshold)
        rule = parse_row({"method": "m2po_paper", "threshold": threshold}).rule
        (group,) = decide(gap, [Placed(rule, 0, cut)]).groups
        assert group.marked[0].tolist() == list(map(bool, wanted)), threshold


def test_vaco_drops_what_moves_outward_of_sequences_that_are_beyond_the_bound() -> None:
    ratios = [[1.5, 0.5, 1.0], [2.0, 1.0, 1.0], [2.0, 0.5], [3.0]]
    # mean |r - 1| is 1/3, 1/3, 3/4 and 2
    gap = log_ratios(ratios, [1.0, -1.0, -1.0, 0.0])
    assert dropped(rules.vaco(gap, threshold=0.3)) == [1, 0, 0, 0, 0, 0, 0, 1, 0]
    assert dropped(rules.vaco(gap, threshold=0.5)) == [0, 0, 0, 0, 0, 0, 0, 1, 0]
    assert not any(dropped(rules.vaco(log_ratios([[2.0], [0.5]], [1.0, -0.0]), threshold=1.0)))
    of_tokens = log_ratios([[2.0, 2.0, 0.5, 0.5]], [[1.0, -1.0, 1.0, -1.0]])
    assert dropped(rules.vaco(of_tokens, threshold=0.0)) == [1, 0, 0, 1]
    with pytest.raises(ValueError, match="advantages"):
        rules.vaco(log_ratios([[2.0]]), threshold=0.1)


def moved(differences: list[list[float]], advantages: list[float]) -> Gaps:
    """p - q of each token, of q = 1/2."""
    half = [[math.log(0.5)] * len(sequence) for sequence in differences]
    return gap_of([[math.log(0.5 + x) for x in sequence] for sequence in differences], half, advantages, D64)


def test_cppo_allows_less_the_further_a_prefix_has_drifted_and_more_late_in_a_sequence() -> None:
    fixed = {"budget": 0.0, "budget_max": 0.0, "w_min": 1.0}
    steady = moved([[0.1, 0.1, 0.1, 0.1]], [1.0])
    assert dropped(rules.cppo(steady, delta=0.15, **fixed)) == [0, 1, 1, 1]
    assert dropped(rules.cppo(steady, delta=0.15, **{**fixed, "budget": 0.09, "budget_max": 0.09})) == [0, 0, 0, 0]
    assert dropped(rules.cppo(steady, delta=0.15, **{**fixed, "budget": 0.07, "budget_max": 0.07})) == [0, 0, 1, 1]
    late = {"budget": 1.0, "w_min": 0.5}
    assert dropped(rules.cppo(moved([[0.2, 0.2, 0.2]], [1.0]), delta=0.16, **late)) == [1, 0, 0]
    assert dropped(rules.cppo(moved([[0.2]], [1.0]), delta=0.16, **late)) == [1]
    inward = moved([[0.1, -0.1, 0.1, -0.1], [-0.3, 0.3]], [-1.0, 0.0])
    assert dropped(rules.cppo(inward, delta=0.0, **fixed)) == [0, 1, 0, 1, 0, 0]


@pytest.mark.parametrize("wrong", [1.0, 65.0, 80.0])
def test_cppo_drops_the_same_before_a_log_prob_that_is_none(wrong: float) -> None:
    row = {"delta": 0.15, "budget": 0.0, "budget_max": 0.0, "w_min": 1.0}
    steady, half = [math.log(0.6)] * 4, [[math.log(0.5)] * 5]
    assert dropped(rules.cppo(gap_of([[*steady, wrong]], half, [1.0], D64), **row)) == [0, 1, 1, 1, 1]
    assert dropped(rules.cppo(gap_of([[*steady[:2], wrong, *steady[2:]]], half, [1.0], D64), **row)) == [0, 1, 1, 1, 1]


def test_the_budget_of_cppo_is_a_quantile_of_the_sequence_within_its_bounds() -> None:
    # of 0.02, 0.03 ... 0.12 the 0.9 quantile is 0.11
    rising = [0.02 + 0.01 * k for k in range(11)]
    gap = moved([rising], [1.0])
    for least, most in ((0.0, 1.0), (0.11, 0.11)):
        assert dropped(rules.cppo(gap, delta=0.105, budget=least, budget_max=most, w_min=1.0)) == [0.0] * 9 + [1.0] * 2
    assert sum(dropped(rules.cppo(gap, delta=0.105, budget=0.0, w_min=1.0))) == 8


def test_seq_mis_keeps_by_the_geometric_ratio_and_weighs_with_the_product() -> None:
    gap = log_ratios([[2.0, 2.0], [1.0, 1.21], [0.5, 0.5]])
    row = parse_row({"method": "seq_mis", "lower": 0.9, "upper": 1.5})
    weight = weight_of(row.rule)
    assert weight is not None
    (group,) = decide(gap, [Placed(row.rule, 0), Placed(weight, 0)]).groups
    assert group.dropped.tolist() == [[True, False, True]]
    weights, excess = clip_weights(gap, group)[:, 0].tolist()
    assert weights == pytest.approx([0.0, 1.21, 0.0], rel=1e-15)
    assert excess == pytest.approx([-1.0, 0.21, -1.0], rel=1e-14)
