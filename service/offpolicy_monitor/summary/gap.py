"""GapSummary: what one gap (mismatch, staleness or total) keeps of a batch, and the figures it answers.

Sums over tokens and over non-empty sequences, extremes, and histograms; each figure of the contract is a function of
them. `d` is the per-token log-ratio of the gap, `a` and `b` the log-probs of its numerator and denominator policy,
`D` and `L` the sum and the mean of d over a sequence. It knows neither torch nor HTTP.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from offpolicy_monitor.pairs import correlation, of_sums
from offpolicy_monitor.summary.histogram import BINS, Counts, Histogram
from offpolicy_monitor.summary.rows import Row, Table, count, magnitude, number
from offpolicy_monitor.summary.sums import Sums
from offpolicy_monitor.vocabulary import EXPONENT_CLAMP, QUANTILES, TOKEN_SIGNS, UNKNOWN_SIGN

if TYPE_CHECKING:
    from offpolicy_monitor.summary.arrays import Arrays

ROUNDED: Final = 1e-14  # what part of a sum of squares its spread must be to be more than rounding
NEAR_ONE: Final = 0.5  # a mean ratio above this is read from sums of x - 1
DEVIATION: Final = "log_ratio_deviation"

#: Over valid tokens; r = exp(d), p = exp(a), q = exp(b), w = exp(clip(d, +-20)).
_OF_TOKENS: Final = (
    count("tokens", "valid tokens", at_most="batch/tokens"),
    number("log_ratio", "d"),
    magnitude("log_ratio_abs", "|d|"),
    magnitude("log_ratio_square", "d^2"),
    Row(
        DEVIATION, "magnitude", "(d - mean d)^2; a merge adds what the two means are apart",
        merge="deviation", of=("tokens", "log_ratio"), since=3,
    ),
    number("log_ratio_min", "the smallest d", merge="min"),
    number("log_ratio_max", "the largest d", merge="max"),
    magnitude("k3", "r - 1 - d"),
    magnitude("k3_reverse", "the k3 of -d"),
    magnitude("js", "the Jensen-Shannon divergence of the sampled token"),
    magnitude("ratio", "r"),
    number("ratio_excess", "r - 1"),
    magnitude("multiplicative_excess", "exp|d| - 1"),
    magnitude("weight", "w"),
    magnitude("weight_square", "w^2"),
    number("weight_excess", "w - 1"),
    magnitude("weight_excess_square", "(w - 1)^2"),
    count("tail_tokens", "|d| > ln 2", at_most="tokens"),
    count("exact_tokens", "d = 0", at_most="tokens"),
    count("clamped_tokens", "|d| > 80", at_most="tail_tokens"),
    magnitude("probability_diff", "|p - q|"),
    magnitude("probability_diff_square", "(p - q)^2"),
    magnitude("probability_diff_max", "the largest |p - q|", merge="max", at_most="probability_diff"),
    magnitude("p", "p"),
    magnitude("q", "q"),
    magnitude("p_square", "p^2"),
    magnitude("q_square", "q^2"),
    magnitude("p_q", "p q"),
)  # fmt: skip

#: Over sequences with at least one valid token; g = exp(L), v = exp(clip(D, +-20)).
_OF_SEQUENCES: Final = (
    count("sequences", "sequences with a valid token", at_most="tokens"),
    magnitude("sequence_k3", "the mean k3 of a sequence"),
    magnitude("sequence_log_ratio_abs", "the mean |d| of a sequence"),
    number("log_geometric", "L"),
    magnitude("log_geometric_abs", "|L|"),
    number("log_geometric_min", "the smallest L", merge="min"),
    number("log_geometric_max", "the largest L", merge="max"),
    magnitude("geometric", "g"),
    magnitude("geometric_square", "g^2"),
    number("geometric_excess", "g - 1"),
    magnitude("geometric_excess_square", "(g - 1)^2"),
    magnitude("inverse_geometric", "exp(-L)"),
    number("log_product", "D"),
    number("log_product_min", "the smallest D", merge="min"),
    number("log_product_max", "the largest D", merge="max"),
    magnitude("product", "v"),
    magnitude("product_square", "v^2"),
    number("product_excess", "v - 1"),
    magnitude("product_excess_square", "(v - 1)^2"),
    magnitude("perplexity_numerator", "exp of the mean of -a"),
    magnitude("perplexity_denominator", "exp of the mean of -b"),
    number("log_perplexity_numerator", "the mean of -a"),
    number("log_perplexity_denominator", "the mean of -b"),
)

#: Quantities of which a histogram is kept, each with what it counts.
QUANTITIES: Final = {"log_ratio": "tokens", "log_geometric_ratio": "sequences", "log_product_ratio": "sequences"}
#: Signs of the advantage by which histograms are divided; `unknown` is without advantages.
SIGNS: Final = (*TOKEN_SIGNS, UNKNOWN_SIGN)

GAP: Final = Table("gaps/{gap}", (*_OF_TOKENS, *_OF_SEQUENCES), "one gap over its valid tokens", needs="two log-probs")
HISTOGRAMS: Final = Table(
    "histograms/{gap}",
    tuple(
        count(quantity, f"{unit} by sign of the advantage and bin", len(SIGNS), BINS, total=f"gaps/{{gap}}/{unit}")
        for quantity, unit in QUANTITIES.items()
    ),
    "log-ratios of a gap",
    needs="two log-probs",
)
TABLES: Final = (GAP, HISTOGRAMS)


@dataclass(frozen=True, eq=False)
class GapSummary:
    """A view of one gap: its sums by name, {} without a token; and of each quantity the counts [SIGNS, BINS]."""

    sums: Sums
    histograms: Mapping[str, Counts]

    @classmethod
    def of(cls, arrays: "Arrays", path: str) -> "GapSummary":
        """The gap whose sums are at a path."""
        sums, of_gap = arrays.record(path), path.replace("gaps/", "histograms/")
        found = {quantity: arrays[f"{of_gap}/{quantity}"] for quantity in QUANTITIES if of_gap in arrays}
        return cls(sums if sums.get("tokens") else {}, found)

    def histogram(self, quantity: str) -> Histogram:
        """The histogram of `log_ratio`, `log_geometric_ratio` or `log_product_ratio` over all advantage signs."""
        return Histogram(self.histograms[quantity].sum(0)) if quantity in self.histograms else Histogram.empty()

    def figures(self) -> dict[str, Any]:
        """The fields of a gap as protocol.md names them; a figure without a denominator is None."""
        sums = self.sums
        if not sums.get("tokens"):
            return {"tokens": 0, "sequences": 0, "clamped_tokens": 0, "sequence": {}}
        return {
            "tokens": int(sums["tokens"]),
            "sequences": int(sums["sequences"]),
            **_token_means(sums),
            **_token_spread(sums),
            **_probability_figures(sums),
            "quantiles": self._quantiles("log_ratio", sums["log_ratio_min"], sums["log_ratio_max"]),
            "sequence": {
                **_sequence_figures(sums),
                "quantiles": self._quantiles(
                    "log_geometric_ratio", sums["log_geometric_min"], sums["log_geometric_max"]
                ),
            },
        }

    def _quantiles(self, quantity: str, lowest: float, highest: float) -> dict[str, float]:
        values = self.histogram(quantity).quantiles(QUANTILES, lowest, highest)
        return {str(q): value for q, value in zip(QUANTILES, values, strict=True)}


def bounded_exp(x: float) -> float:
    """exp(clip(x, +-80))."""
    return math.exp(max(-EXPONENT_CLAMP, min(EXPONENT_CLAMP, x)))


def variance(total: float, total_square: float, count: float) -> float:
    """Population variance from sums; rounding cannot make it negative."""
    average = total / count
    spread = total_square / count - average * average
    return spread if not spread < 0 else 0.0


def ratio_mean(sums: Sums, name: str, count: float) -> float:
    """Mean of a ratio x from its sums `name` (of x) and `name_excess` (of x - 1).

    Sums of x - 1 keep their digits where a healthy run lives, close to 1; sums of x keep theirs far below it.
    """
    direct = sums[name] / count
    return 1 + sums[f"{name}_excess"] / count if direct > NEAR_ONE else direct


def ratio_spread(sums: Sums, name: str, count: float) -> tuple[float, float, float]:
    """chi2 = mean(x^2) - 1, ESS = mean(x)^2 / mean(x^2) and the standard deviation of a ratio x, from its sums."""
    mean = ratio_mean(sums, name, count)
    if mean > NEAR_ONE:
        excess, square = sums[f"{name}_excess"], sums[f"{name}_excess_square"]
        chi2 = (square + 2 * excess) / count
        return chi2, mean * mean / (1 + chi2), math.sqrt(variance(excess, square, count))
    second = sums[f"{name}_square"] / count
    ess = mean * mean / second if second > 0 else math.nan
    return second - 1, ess, math.sqrt(variance(sums[name], sums[f"{name}_square"], count))


def _token_means(sums: Sums) -> dict[str, Any]:
    count = sums["tokens"]
    chi2, ess, _ = ratio_spread(sums, "weight", count)
    return {
        "k1": -sums["log_ratio"] / count,
        "k2": sums["log_ratio_square"] / (2 * count),
        "k3": sums["k3"] / count,
        "k3_reverse": sums["k3_reverse"] / count,
        "js": sums["js"] / count,
        "log_ratio_mean": sums["log_ratio"] / count,
        "abs_log_ratio_mean": sums["log_ratio_abs"] / count,
        "ratio_mean": ratio_mean(sums, "ratio", count),
        "multiplicative_error": 1 + sums["multiplicative_excess"] / count,
        "tail_fraction": sums["tail_tokens"] / count,
        "exact_fraction": sums["exact_tokens"] / count,
        "chi2": chi2,
        "ess": ess,
    }


def _token_spread(sums: Sums) -> dict[str, Any]:
    lowest, highest = sums["log_ratio_min"], sums["log_ratio_max"]
    return {
        "log_ratio_std": math.sqrt(_log_ratio_variance(sums)),
        "log_ratio_min": lowest,
        "log_ratio_max": highest,
        "abs_log_ratio_max": max(-lowest, highest),
        "ratio_min": bounded_exp(lowest),
        "ratio_max": bounded_exp(highest),
        "clamped_tokens": int(sums["clamped_tokens"]),
    }


def _log_ratio_variance(sums: Sums) -> float:
    """Of a summary without the deviation, which older releases did not keep, from the sums of d and d^2."""
    if DEVIATION in sums:
        return sums[DEVIATION] / sums["tokens"]
    return variance(sums["log_ratio"], sums["log_ratio_square"], sums["tokens"])


def _probability_figures(sums: Sums) -> dict[str, Any]:
    count = sums["tokens"]
    spread = variance(sums["probability_diff"], sums["probability_diff_square"], count)
    return {
        "probability_diff_mean": sums["probability_diff"] / count,
        "probability_diff_max": sums["probability_diff_max"],
        "probability_diff_std": math.sqrt(spread),
        "probability_correlation": _correlation(sums),
    }


def _correlation(sums: Sums) -> float | None:
    """Pearson correlation of p and q; None where one of them does not vary beyond rounding."""
    pairs = of_sums(*(sums[name] for name in ("tokens", "p", "q", "p_square", "p_q", "q_square")))
    return correlation(pairs, ROUNDED * sums["p_square"], ROUNDED * sums["q_square"])


def _sequence_figures(sums: Sums) -> dict[str, Any]:
    count = sums["sequences"]
    chi2, ess, _ = ratio_spread(sums, "product", count)
    _, _, geometric_std = ratio_spread(sums, "geometric", count)
    return {
        "k1": -sums["log_geometric"] / count,
        "k3": sums["sequence_k3"] / count,
        "abs_log_ratio_mean": sums["sequence_log_ratio_abs"] / count,
        "geometric_ratio_mean": ratio_mean(sums, "geometric", count),
        "geometric_ratio_min": bounded_exp(sums["log_geometric_min"]),
        "geometric_ratio_max": bounded_exp(sums["log_geometric_max"]),
        "geometric_ratio_std": geometric_std,
        "log_geometric_ratio_mean": sums["log_geometric"] / count,
        "log_geometric_ratio_abs_mean": sums["log_geometric_abs"] / count,
        "log_geometric_ratio_min": sums["log_geometric_min"],
        "log_geometric_ratio_max": sums["log_geometric_max"],
        "log_product_ratio_mean": sums["log_product"] / count,
        "log_product_ratio_min": sums["log_product_min"],
        "log_product_ratio_max": sums["log_product_max"],
        "chi2": chi2,
        "ess": ess,
        "perplexity_numerator": sums["perplexity_numerator"] / count,
        "perplexity_denominator": sums["perplexity_denominator"] / count,
        "log_perplexity_numerator": sums["log_perplexity_numerator"] / count,
        "log_perplexity_denominator": sums["log_perplexity_denominator"] / count,
        "perplexity_ratio": sums["inverse_geometric"] / count,
    }
