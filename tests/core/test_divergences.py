"""Per-token divergences have the digits that the contract promises, near equality and far from it."""

import math
from collections.abc import Iterable
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from offpolicy_monitor.core.divergences import (
    bernoulli,
    binary_kls,
    exponentials,
    js_terms,
    probability,
    ratio_and_excess,
)

from tests.reference_methods import binary_kl as exact_binary_kl


def binary_kl(log_q: torch.Tensor, log_p: torch.Tensor) -> torch.Tensor:
    """KL(q || p); the other way round it is what it is with the two exchanged."""
    sides = torch.stack([log_q, log_p])
    forward, backward = binary_kls(torch.stack(bernoulli(sides)))
    exchanged = binary_kls(torch.stack(bernoulli(sides.flip(0))))
    assert torch.equal(forward, exchanged[1]) and torch.equal(backward, exchanged[0])
    return forward


MAGNITUDES = [s * m * 10.0**e for e in range(-6, 2) for m in (1.0, 1.7, 3.1, 7.9) for s in (1, -1)]


def float32(values: Iterable[float]) -> torch.Tensor:
    return torch.tensor(list(values), dtype=torch.float32)


def exact(d: float) -> Decimal:
    """exp(d) - 1 - d to 50 digits."""
    with localcontext() as context:
        context.prec = 60
        return Decimal(d).exp() - 1 - Decimal(d)


def exact_log_cosh_half(d: float) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        half = Decimal(d) / 2
        return ((half.exp() + (-half).exp()) / 2).ln()


def assert_relative(got: torch.Tensor, expected: list[Decimal], relative: float) -> None:
    for value, wanted in zip(got.double().tolist(), expected, strict=True):
        assert abs(Decimal(value) - wanted) <= Decimal(relative) * abs(wanted), (value, wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_k3_has_five_digits_at_every_magnitude_of_the_log_ratio(dtype: torch.dtype) -> None:
    d = torch.tensor(MAGNITUDES, dtype=torch.float32).to(dtype)
    got = exponentials(d)
    assert_relative(got.k3, [exact(x) for x in d.tolist()], 2e-6)
    assert_relative(got.k3_reverse, [exact(-x) for x in d.tolist()], 2e-6)
    assert_relative(exponentials(d).k3, [exact(x) for x in d.tolist()], 2e-6)


@pytest.mark.parametrize("mean_k3", [1e-9, 1e-7, 1e-4, 1e-2])
def test_the_mean_of_k3_has_five_digits_down_to_1e_minus_9(mean_k3: float) -> None:
    d = float32(np.random.default_rng(1).standard_normal(4000) * math.sqrt(2 * mean_k3))
    expected = sum((exact(x) for x in d.tolist()), Decimal(0))
    assert_relative(exponentials(d).k3.double().sum().reshape(1), [expected], 1e-7)


def test_k3_is_never_negative_and_is_zero_at_zero() -> None:
    d = float32([0.0, -0.0, 1e-30, -1e-30, 1e-8, -1e-8, 0.09999, -0.09999, 0.1, -0.1])
    terms = exponentials(d)
    assert float(terms.k3.min()) >= 0 and float(terms.k3_reverse.min()) >= 0
    assert terms.k3[:2].tolist() == terms.k3_reverse[:2].tolist() == [0.0, 0.0]


def test_only_the_exponential_of_k3_is_clamped_at_80() -> None:
    d = torch.tensor([80.0, 100.0, -80.0, -100.0], dtype=torch.float64)
    top = math.expm1(80.0)
    assert exponentials(d).k3.tolist() == pytest.approx([top - 80, top - 100, 79.0, 99.0], rel=1e-15)
    assert exponentials(float32([-100.0])).k3.tolist() == [99.0]
    assert bool(torch.isfinite(exponentials(float32([1e30, -1e30])).k3).all())


def test_the_ratio_is_clamped_at_80() -> None:
    ratio, got = ratio_and_excess(torch.tensor([81.0, 500.0, -500.0, 1e-12], dtype=torch.float64)).tolist()
    assert ratio == pytest.approx([math.exp(80.0), math.exp(80.0), math.exp(-80.0), 1.0], rel=1e-11)
    assert got[:3] == pytest.approx([math.expm1(80.0), math.expm1(80.0), math.expm1(-80.0)], rel=1e-15)
    assert got[3] == pytest.approx(1e-12, rel=1e-11)


@pytest.mark.parametrize("d", [*MAGNITUDES, 0.249, 0.251, -0.249, -0.251, 0.26, 0.3])
def test_js_is_log_cosh_of_half_the_log_ratio(d: float) -> None:
    value = float32([d])
    got = js_terms(value.abs(), torch.expm1(-value.abs().double()))
    assert_relative(got, [exact_log_cosh_half(float(value))], 1e-5)


def test_js_of_two_known_probabilities() -> None:
    # a = log 0.5, b = log 0.125: m = log 0.3125, js = m - (a + b) / 2 = log(0.3125 / 0.25)
    d = torch.tensor([math.log(4.0)], dtype=torch.float64)
    assert js_terms(d, torch.expm1(-d)).tolist() == pytest.approx([math.log(1.25)], rel=1e-14)


def test_js_of_equal_policies_is_zero_and_of_far_ones_is_finite() -> None:
    d = float32([0.0, 300.0, 1e30])
    assert js_terms(d, torch.expm1(-d.double())).tolist() == pytest.approx([0.0, 150.0 - math.log(2), 5e29], rel=1e-6)


def test_a_probability_is_the_exponential_clamped_at_80_from_above_alone() -> None:
    got = probability(torch.tensor([0.0, -700.0, 80.0, 1e4], dtype=torch.float64)).tolist()
    assert got == [1.0, math.exp(-700.0), math.exp(80.0), math.exp(80.0)]


@pytest.mark.parametrize("move", [1e-7, 1e-5, 1e-3, 0.1, 1.0, 20.0])
@pytest.mark.parametrize("b", [-1e-4, -0.5, -3.0, -20.0])
def test_a_probability_difference_keeps_its_digits_near_equality(b: float, move: float) -> None:
    a = np.float32(b - move)
    log_p, log_q = float32([float(a)]), float32([b])
    got = probability(log_p) - probability(log_q)
    with localcontext() as context:
        context.prec = 40
        expected = Decimal(float(log_p)).exp() - Decimal(float(log_q)).exp()
    assert_relative(got, [expected], 5e-7)


@pytest.mark.parametrize(
    ("q", "p", "kl"),
    [
        (0.5, 0.25, 0.5 * math.log(2) + 0.5 * math.log(0.5 / 0.75)),
        (0.9, 0.1, 0.9 * math.log(9) + 0.1 * math.log(0.1 / 0.9)),
        (0.25, 0.25, 0.0),
        (1e-3, 0.5, 1e-3 * math.log(2e-3) + 0.999 * math.log(0.999 / 0.5)),
    ],
)
def test_binary_kl_of_known_probabilities(q: float, p: float, kl: float) -> None:
    log_q, log_p = (torch.tensor([math.log(x)], dtype=torch.float64) for x in (q, p))
    assert binary_kl(log_q, log_p).tolist() == pytest.approx([kl], rel=1e-12, abs=1e-15)


def test_binary_kl_is_infinite_where_only_p_is_certain_and_not_where_both_are() -> None:
    certain, uncertain = float32([0.0]), float32([math.log(0.5)])
    assert binary_kl(uncertain, certain).tolist() == [math.inf]
    assert binary_kl(certain, uncertain).tolist() == pytest.approx([math.log(2)], rel=1e-6)
    assert binary_kl(certain, certain).tolist() == [0.0]


def test_binary_kl_reads_a_positive_log_prob_as_certain() -> None:
    assert binary_kl(float32([0.7]), float32([0.5])).tolist() == [0.0]
    assert binary_kl(float32([-1.0]), float32([0.5])).tolist() == [math.inf]


@pytest.mark.parametrize("d", [-0.5, -0.05, -1e-2, -1e-3, 1e-3, 1e-2, 0.05])
@pytest.mark.parametrize("log_q", [-0.06, -0.5, -2.0, -8.0, -14.0])
def test_binary_kl_of_near_policies_keeps_the_digits_that_a_mask_needs(log_q: float, d: float) -> None:
    a, b = float32([log_q]), float32([log_q + d])
    expected = exact_binary_kl(float(a), float(b))
    assert binary_kl(a, b).tolist() == pytest.approx([expected], rel=1e-6, abs=1e-14)
