"""Lines and correlations of pairs are numpy's own, from sums, from groups and for many sets at once."""

import math

import numpy as np
import pytest
from offpolicy_monitor.pairs import Pairs, correlation, of_points, of_sums

RNG = np.random.default_rng(3)
X = np.repeat([0.0, 1.0, 2.0, 5.0], [7, 5, 9, 4])
Y = 3.0 - 0.5 * X + RNG.normal(0, 0.3, len(X))


def sums() -> Pairs[float]:
    return of_sums(len(X), X.sum(), Y.sum(), (X * X).sum(), (X * Y).sum(), (Y * Y).sum())


def groups() -> Pairs[float]:
    spread = float(((Y - Y.mean()) ** 2).sum())
    return of_points([((x == X).sum(), x, Y[x == X].sum()) for x in np.unique(X)], spread)


@pytest.mark.parametrize("pairs", [sums(), groups()], ids=["sums", "groups"])
def test_a_line_and_its_error_are_those_of_least_squares(pairs: Pairs[float]) -> None:
    (slope, intercept), covariance = np.polyfit(X, Y, 1, cov=True)
    assert (pairs.slope, pairs.intercept) == (pytest.approx(slope), pytest.approx(intercept))
    assert pairs.slope_error == pytest.approx(math.sqrt(covariance[0, 0]))
    assert pairs.chance_error == pytest.approx(Y.std() / (X.std() * math.sqrt(len(X))))
    assert pairs.share == pytest.approx(slope * X.mean() / Y.mean())


@pytest.mark.parametrize("pairs", [sums(), groups()], ids=["sums", "groups"])
def test_a_correlation_is_pearsons(pairs: Pairs[float]) -> None:
    assert correlation(pairs) == pytest.approx(np.corrcoef(X, Y)[0, 1])


def test_what_does_not_vary_beyond_rounding_has_no_correlation() -> None:
    assert correlation(of_sums(3, 3.0, 6.0, 3.0, 6.0, 14.0)) is None
    assert correlation(of_sums(3, 6.0, 3.0, 14.0, 6.0, 3.0)) is None
    nearly = of_sums(4, 4.0, 6.0, 4.0 + 1e-9, 6.0, 14.0)
    assert correlation(nearly, least_xx=1e-7 * 4.0) is None


def test_spreads_whose_product_is_no_float_have_a_correlation() -> None:
    tiny = 1e-120
    assert correlation(Pairs(2, 0.0, 0.0, tiny**2, tiny**2, tiny**2)) == pytest.approx(1.0)


def test_a_line_that_fits_to_the_bit_leaves_a_little_all_the_same() -> None:
    x = np.arange(5.0)
    exact = of_sums(5, x.sum(), (2 * x).sum(), (x * x).sum(), (2 * x * x).sum(), (4 * x * x).sum())
    assert exact.slope == 2.0
    assert 0 < exact.slope_error < 1e-5


def test_many_sets_of_pairs_at_once_give_each_its_own_line() -> None:
    rows = RNG.normal(size=(6, 10)) + np.arange(10.0)
    positions = np.arange(10) - 4.5
    apart = rows - rows.mean(1, keepdims=True)
    many = Pairs(10, np.zeros(6), rows.mean(1), np.full(6, (positions**2).sum()), apart @ positions, (apart**2).sum(1))
    expected = [np.polyfit(positions, row, 1, cov=True) for row in rows]
    np.testing.assert_allclose(many.slope, [line[0] for line, _ in expected])
    np.testing.assert_allclose(many.slope_error, [math.sqrt(covariance[0, 0]) for _, covariance in expected])
