"""How close the service's figures must be to the oracle's: the tolerances of the design's page on accuracy.

1e-6 relative for means and 1e-5 for k3, each against the size of what is averaged (a mean of signed terms may cancel);
counts exactly. The package subtracts in float32, which rounds d by half an ulp, so figures of exp(d) are compared at
1e-6 * max(1, max |d|), and those of a mean or a sum L of d with 2.5e-7 of what |d| adds up to.
"""

import math
from collections.abc import Mapping
from typing import Any

from offpolicy_monitor.summary.histogram import RELATIVE_ERROR

from tests.reference import GAPS, QUANTILES, Sequence, Token, exp, gap_figures, mean, quantile, std, valid_tokens
from tests.reference_methods import Outcome

COUNTS = ("tokens", "sequences")
EXTREMES = ("log_ratio_min", "log_ratio_max", "abs_log_ratio_max")
SQUARES = ("k2",)
K3_FIGURES = ("k3", "k3_reverse", "js")
EXPONENTIALS = (
    "ratio_mean", "ratio_min", "ratio_max", "multiplicative_error", "ess", "probability_diff_mean",
    "probability_diff_max",
)  # fmt: skip
SEQUENCE_SIGNED = (
    "k1", "abs_log_ratio_mean", "log_geometric_ratio_mean", "log_geometric_ratio_abs_mean",
    "log_geometric_ratio_min", "log_geometric_ratio_max",
)  # fmt: skip
SEQUENCE_PRODUCTS = ("log_product_ratio_mean", "log_product_ratio_min", "log_product_ratio_max")
SEQUENCE_EXPONENTIALS = (
    "geometric_ratio_mean", "geometric_ratio_min", "geometric_ratio_max", "perplexity_numerator",
    "perplexity_denominator", "perplexity_ratio",
)  # fmt: skip
#: Squares of float32 log-ratios below 1e-19 are no normal float32 numbers.
SMALLEST_SQUARE = 1e-37
#: Magnitudes at which histogram bins begin and end to be relative.
RESOLVED = (2.0**-24, 2.0**8)


def close(name: str, got: float | None, expected: float | None, relative: float, absolute: float = 0.0) -> None:
    if expected is None or got is None:
        assert got is expected, f"{name}: {got} where {expected} was expected"
        return
    allowed = relative * abs(expected) + absolute
    assert abs(got - expected) <= allowed, f"{name}: got {got!r}, expected {expected!r} within {allowed:.3g}"


def assert_gap_agrees(got: Mapping[str, Any], sent: list[Sequence], gap: str) -> None:
    """Every figure of a gap is the oracle's."""
    expected = gap_figures(sent, gap)
    for name in COUNTS:
        assert got[name] == expected[name], name
    if expected["tokens"] == 0:
        absent = {name: value for name, value in got.items() if name not in COUNTS and value not in (None, 0, {})}
        assert absent == {}
        return
    tokens = [token for sequence in valid_tokens(sent, gap) for token in sequence]
    d = [token.d for token in tokens]
    widen = max(1.0, max(abs(x) for x in d))
    _assert_token_means(got, expected, widen)
    _assert_spreads(got, expected, d, widen)
    _assert_correlation(got, expected, tokens)
    near = sum(abs(abs(x) - math.log(2)) <= 1e-6 for x in d)
    close("tail_fraction", got["tail_fraction"], expected["tail_fraction"], 1e-12, near / len(d))
    close("exact_fraction", got["exact_fraction"], expected["exact_fraction"], 1e-12)
    near = sum(abs(abs(x) - 80) <= 1e-4 for x in d)
    close("clamped_tokens", got["clamped_tokens"], expected["clamped_tokens"], 0, near)
    _assert_quantiles(got["quantiles"], d)
    _assert_sequence_agrees(got["sequence"], expected["sequence"], valid_tokens(sent, gap))


def _assert_token_means(got: Mapping[str, Any], expected: Mapping[str, Any], widen: float) -> None:
    size = expected["abs_log_ratio_mean"]
    for name in ("k1", "log_ratio_mean", "abs_log_ratio_mean"):
        close(name, got[name], expected[name], 0, 1e-6 * size)
    for name in (*EXTREMES, *SQUARES):
        close(name, got[name], expected[name], 1e-6, 1e-30)
    for name in K3_FIGURES:
        close(name, got[name], expected[name], 1e-5 * max(1, widen / 40), 1e-14)
    for name in EXPONENTIALS:
        close(name, got[name], expected[name], 1e-6 * widen, 1e-37)


def _assert_spreads(got: Mapping[str, Any], expected: Mapping[str, Any], d: list[float], widen: float) -> None:
    close_variance("log_ratio_std", got["log_ratio_std"], expected["log_ratio_std"], mean(x * x for x in d))
    square = expected["probability_diff_std"] ** 2 + expected["probability_diff_mean"] ** 2
    close_variance(
        "probability_diff_std", got["probability_diff_std"], expected["probability_diff_std"], widen * square
    )
    w = [math.exp(max(-20.0, min(20.0, x))) - 1 for x in d]
    close("chi2", got["chi2"], expected["chi2"], 0, 1e-6 * widen * mean(x * x + 2 * abs(x) for x in w) + 1e-15)


def _assert_correlation(got: Mapping[str, Any], expected: Mapping[str, Any], tokens: list[Token]) -> None:
    """Where both probabilities vary by more than their rounding; where one is constant there is none.

    Probabilities are float32: the less they vary, the more of what varies is rounding.
    """
    sides = [[exp(token.a) for token in tokens], [exp(token.b) for token in tokens]]
    correlation = got["probability_correlation"]
    if any(len(set(side)) == 1 for side in sides):
        assert correlation is None
    elif all(std(side) > 1e-3 * mean(side) for side in sides):
        rounding = max(mean(side) / std(side) for side in sides) * 2**-24
        close("probability_correlation", correlation, expected["probability_correlation"], 0, 1e-6 + rounding)
    else:
        assert correlation is None or -1 <= correlation <= 1


def close_variance(name: str, got: float, expected: float, mean_square: float, relative: float = 1e-6) -> None:
    """A standard deviation is as good as its variance, whose terms are squares."""
    allowed = relative * mean_square + SMALLEST_SQUARE
    assert abs(got**2 - expected**2) <= allowed, f"{name}: got {got!r}, expected {expected!r}, variance {allowed:.3g}"


def _assert_quantiles(got: Mapping[str, float], values: list[float]) -> None:
    """Within the stated error of the two order statistics between which a quantile lies."""
    ordered = sorted(values)
    for fraction in QUANTILES:
        rank = fraction * (len(ordered) - 1)
        around = (ordered[math.floor(rank)], ordered[math.ceil(rank)])
        if max(map(abs, around)) < RESOLVED[1]:
            allowed = RELATIVE_ERROR * max(map(abs, around)) + RESOLVED[0]
            close(f"quantile {fraction}", got[str(fraction)], quantile(values, fraction), 0, allowed)


def _assert_sequence_agrees(got: Mapping[str, Any], expected: Mapping[str, Any], request: list[list[Any]]) -> None:
    filled = [[token.d for token in tokens] for tokens in request if tokens]
    size = max(mean(abs(x) for x in d) for d in filled)
    total = max(math.fsum(abs(x) for x in d) for d in filled)
    widen, product_widen = max(1.0, size), max(1.0, total)
    for name in SEQUENCE_SIGNED:
        close(name, got[name], expected[name], 0, 1e-6 * size)
    for name in SEQUENCE_PRODUCTS:
        close(name, got[name], expected[name], 0, 1e-6 * total)
    for name in SEQUENCE_EXPONENTIALS:
        close(name, got[name], expected[name], 1e-6 * widen, 1e-15)
    for name in ("log_perplexity_numerator", "log_perplexity_denominator"):
        close(name, got[name], expected[name], 1e-6, 1e-30)
    close("sequence k3", got["k3"], expected["k3"], 1e-5 * max(1, max(abs(x) for d in filled for x in d) / 40), 1e-14)
    v = [math.exp(max(-20.0, min(20.0, math.fsum(d)))) - 1 for d in filled]
    allowed = 1e-6 * product_widen * mean(x * x + 2 * abs(x) + total * (x + 1) ** 2 / 4 for x in v) + 1e-15
    close("sequence chi2", got["chi2"], expected["chi2"], 0, allowed)
    close("sequence ess", got["ess"], expected["ess"], 1e-6 * product_widen)
    g = [math.exp(max(-80.0, min(80.0, mean(d)))) - 1 for d in filled]
    allowed = 1e-6 * widen * mean(x * x + 2 * abs(x) + size * (x + 1) ** 2 / 4 for x in g) + 1e-15
    close("sequence chi2_geometric", got["chi2_geometric"], expected["chi2_geometric"], 0, allowed)
    square = mean(x * x for x in g)
    square += size * math.sqrt(square) / 4
    close_variance("geometric_ratio_std", got["geometric_ratio_std"], expected["geometric_ratio_std"], widen * square)
    _assert_quantiles(got["quantiles"], [mean(d) for d in filled])


def assert_method_agrees(got: Mapping[str, Any], expected: Outcome, widen: float) -> None:
    """Every figure, mask and weight of a row is the oracle's, where no statistic is too close to its threshold."""
    for name in COUNTS:
        assert got[name] == expected.figures[name], name
    if (largest := expected.figures.get("weight_max") or 0) > 0:
        widen = max(widen, abs(math.log(largest)))  # a rule on the mean of d may weight by the product of ratios
    if expected.weights is not None and "weights" in got:
        for mine, theirs in zip(got["weights"], expected.weights, strict=True):
            for weight, wanted in zip(mine, theirs, strict=True):
                close("weight", weight, wanted, 1e-6 * widen, 1e-15)
    if expected.doubtful:
        return
    if "keep_tokens" in got:
        assert got["keep_tokens"] == expected.keep
        assert got["keep_sequences"] == [int(any(kept)) for kept in expected.keep]
    for name, value in expected.figures.items():
        if isinstance(value, int):
            assert got[name] == value, name
        elif name == "weight_ess" and expected.figures["weight_mean"] < 1e-18:
            continue  # the squares of such weights are no float32 numbers
        elif name == "weight_std":
            # A float32 weight is rounded by 6e-8 before one is taken off, and the square of w - 1 once more.
            excess_square = value**2 + (expected.figures["weight_mean"] - 1) ** 2
            close_variance(name, got[name], value, excess_square + 0.12 * math.sqrt(excess_square) + 1e-8, 1e-6 * widen)
        else:
            close(name, got[name], value, (1e-5 if name.startswith("k3") else 1e-6) * widen, 1e-14)
    if "masked_low_tokens" not in expected.figures:
        assert "masked_low_tokens" not in got and "masked_high_tokens" not in got


def largest_log_ratio(sent: list[Sequence], gap: str, summed: bool = False) -> float:
    """max(1, max |d|), or the largest sum of |d| over a sequence: what exponentials of float32 log-ratios lose."""
    assert gap in GAPS
    sizes = [[abs(token.d) for token in tokens] for tokens in valid_tokens(sent, gap)]
    return max([1.0, *(math.fsum(own) if summed else max(own, default=0.0) for own in sizes)])
