"""What a gap (mismatch, staleness or total) keeps of a batch, and the figures that gaps answer.

Sums over tokens and over non-empty sequences, extremes, and histograms; each figure of the contract is a formula over
them, of all gaps at once (summary.records). `d` is the per-token log-ratio of the gap, `a` and `b` the log-probs of
its numerator and denominator policy, `D` and `L` the sum and the mean of d over a sequence. It knows neither torch nor
HTTP.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, NamedTuple

import numpy as np

from offpolicy_monitor.pairs import correlations
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.histogram import BINS, Counts, Histogram, Histograms
from offpolicy_monitor.summary.records import Floats, Formula, Formulas, Records
from offpolicy_monitor.summary.rows import OF_GAP, Row, Table, count, magnitude, number
from offpolicy_monitor.summary.scheme import REMEMBERED, Scheme
from offpolicy_monitor.summary.sums import Sums
from offpolicy_monitor.vocabulary import EXPONENT_CLAMP, TOKEN_SIGNS, UNKNOWN_SIGN

ROUNDED: Final = 1e-14  # what part of a sum of squares its spread must be to be more than rounding
NEAR_ONE: Final = 0.5  # a mean ratio above this is read from sums of x - 1
DEVIATION: Final = "log_ratio_deviation"
#: Tokens at which the ESS of product ratios falls to about 0.3, from ESS = exp(-2 k3 T).
LENGTH_BUDGET: Final = 0.6

#: Over valid tokens; r = exp(d), p = exp(a), q = exp(b), w = exp(clip(d, +-20)).
_OF_TOKENS: Final = (
    count("tokens", "valid tokens", at_most="batch/tokens"),
    number("log_ratio", "d", at_most="log_ratio_abs"),
    magnitude("log_ratio_abs", "|d|"),
    magnitude("log_ratio_square", "d^2", square_of=("tokens", "log_ratio_abs"), product=True),
    Row(
        DEVIATION, "magnitude", "(d - mean d)^2; a merge adds what the two means are apart",
        merge="deviation", of=("tokens", "log_ratio"), since=3, product=True,
    ),
    number("log_ratio_min", "the smallest d", merge="min", extreme_of=("tokens", "log_ratio")),
    number("log_ratio_max", "the largest d", merge="max", extreme_of=("tokens", "log_ratio")),
    magnitude("k3", "r - 1 - d"),
    magnitude("k3_reverse", "the k3 of -d"),
    magnitude("js", "the Jensen-Shannon divergence of the sampled token"),
    magnitude("ratio", "r"),
    number("ratio_excess", "r - 1"),
    magnitude("multiplicative_excess", "exp|d| - 1"),
    magnitude("weight", "w"),
    magnitude("weight_square", "w^2", square_of=("tokens", "weight"), product=True),
    number("weight_excess", "w - 1"),
    magnitude("weight_excess_square", "(w - 1)^2", square_of=("tokens", "weight_excess"), product=True),
    count("tail_tokens", "|d| > ln 2", at_most="tokens"),
    count("exact_tokens", "d = 0", at_most="tokens"),
    count("clamped_tokens", "|d| > 80", at_most="tail_tokens"),
    magnitude("probability_diff", "|p - q|"),
    magnitude("probability_diff_square", "(p - q)^2", square_of=("tokens", "probability_diff"), product=True),
    magnitude(
        "probability_diff_max", "the largest |p - q|", merge="max",
        at_most="probability_diff", extreme_of=("tokens", "probability_diff"),
    ),
    magnitude("p", "p"),
    magnitude("q", "q"),
    magnitude("p_square", "p^2", square_of=("tokens", "p"), product=True),
    magnitude("q_square", "q^2", square_of=("tokens", "q"), product=True),
    magnitude("p_q", "p q", product_of=("tokens", "p_square", "q_square")),
)  # fmt: skip

#: Over sequences with at least one valid token; g = exp(L), v = exp(clip(D, +-20)).
_OF_SEQUENCES: Final = (
    count("sequences", "sequences with a valid token", at_most="tokens"),
    magnitude("sequence_k3", "the mean k3 of a sequence"),
    magnitude("sequence_log_ratio_abs", "the mean |d| of a sequence"),
    number("log_geometric", "L", at_most="log_geometric_abs"),
    magnitude("log_geometric_abs", "|L|"),
    number("log_geometric_min", "the smallest L", merge="min", extreme_of=("sequences", "log_geometric")),
    number("log_geometric_max", "the largest L", merge="max", extreme_of=("sequences", "log_geometric")),
    magnitude("geometric", "g"),
    magnitude("geometric_square", "g^2", square_of=("sequences", "geometric"), product=True),
    number("geometric_excess", "g - 1"),
    magnitude("geometric_excess_square", "(g - 1)^2", square_of=("sequences", "geometric_excess"), product=True),
    magnitude("inverse_geometric", "exp(-L)"),
    number("log_product", "D"),
    number("log_product_min", "the smallest D", merge="min", extreme_of=("sequences", "log_product")),
    number("log_product_max", "the largest D", merge="max", extreme_of=("sequences", "log_product")),
    magnitude("product", "v"),
    magnitude("product_square", "v^2", square_of=("sequences", "product"), product=True),
    number("product_excess", "v - 1"),
    magnitude("product_excess_square", "(v - 1)^2", square_of=("sequences", "product_excess"), product=True),
    magnitude("perplexity_numerator", "exp of the mean of -a"),
    magnitude("perplexity_denominator", "exp of the mean of -b"),
    number("log_perplexity_numerator", "the mean of -a"),
    number("log_perplexity_denominator", "the mean of -b"),
)

#: Quantities of which a histogram is kept, each with what it counts.
QUANTITIES: Final = {"log_ratio": "tokens", "log_geometric_ratio": "sequences", "log_product_ratio": "sequences"}
#: Signs of the advantage by which histograms are divided; `unknown` is without advantages.
SIGNS: Final = (*TOKEN_SIGNS, UNKNOWN_SIGN)

GAP: Final = Table("gaps/{gap}", (*_OF_TOKENS, *_OF_SEQUENCES), "one gap over its valid tokens", needs=(OF_GAP,))
HISTOGRAMS: Final = Table(
    "histograms/{gap}",
    tuple(
        count(quantity, f"{unit} by sign of the advantage and bin", len(SIGNS), BINS, total=f"gaps/{{gap}}/{unit}")
        for quantity, unit in QUANTITIES.items()
    ),
    "log-ratios of a gap",
    needs=(OF_GAP,),
)
TABLES: Final = (GAP, HISTOGRAMS)


@dataclass(frozen=True, eq=False)
class GapSummary:
    """A view of one gap: its sums by name, {} without a token; and of each quantity the counts [SIGNS, BINS]."""

    sums: Sums
    histograms: Mapping[str, Counts]

    @classmethod
    def of(cls, arrays: Arrays, path: str) -> "GapSummary":
        """The gap whose sums are at a path."""
        sums, of_gap = arrays.record(path), path.replace("gaps/", "histograms/")
        return cls(sums if sums.get("tokens") else {}, _Histograms(arrays, of_gap) if of_gap in arrays else {})

    def histogram(self, quantity: str) -> Histogram:
        """The histogram of `log_ratio`, `log_geometric_ratio` or `log_product_ratio` over all advantage signs."""
        return Histogram(self.histograms[quantity].sum(0)) if quantity in self.histograms else Histogram.empty()


class _Histograms(Mapping[str, Counts]):
    """Those of a gap, each written out when it is asked for."""

    def __init__(self, arrays: Arrays, path: str) -> None:
        self._arrays, self._path = arrays, path

    def __getitem__(self, quantity: str) -> Counts:
        return self._arrays[f"{self._path}/{quantity}"]

    def __iter__(self) -> Iterator[str]:
        return iter(QUANTITIES)

    def __len__(self) -> int:
        return len(QUANTITIES)


#: Quantities whose histograms are answered and exposed.
SHOWN: Final = ("log_ratio", "log_geometric_ratio")


def shown(arrays: Arrays) -> Histograms:
    """The histograms of SHOWN over all advantage signs: those of the first quantity of each gap, then of the second."""
    begins = shown_from(arrays.scheme.base)
    if not len(begins):
        return Histograms(0, begins, begins)
    where, counts = arrays.filled
    first, last = where.searchsorted([begins, begins + len(SIGNS) * BINS])
    chosen = np.concatenate([np.arange(begin, end) for begin, end in zip(first.tolist(), last.tolist(), strict=True)])
    number = np.repeat(np.arange(len(begins)), last - first)
    return Histograms.of(len(begins), (where[chosen] - begins[number]) % BINS + number * BINS, counts[chosen])


@lru_cache(REMEMBERED)
def shown_from(scheme: Scheme) -> Counts:
    """Where these histograms begin among counts, in that order."""
    names = [
        f"{path.replace('gaps/', 'histograms/')}/{quantity}" for quantity in SHOWN for path in scheme.under("gaps")
    ]
    return np.array([scheme.spans[name].start for name in names], np.int64)


def bounded_exp(x: Floats) -> Floats:
    """exp(clip(x, +-80)), the same to the bit on every machine, which numpy's is not."""
    found: Floats = _bounded_exp(x).astype(np.float64)  # pyrefly: ignore[missing-attribute]
    return found


_bounded_exp: Final = np.frompyfunc(lambda value: math.exp(max(-EXPONENT_CLAMP, min(EXPONENT_CLAMP, value))), 1, 1)


def variance(total: Floats, total_square: Floats, count: Floats) -> Floats:
    """Population variance from sums; rounding cannot make it negative."""
    average = total / count
    return np.maximum(total_square / count - average * average, 0.0)


def ratio_mean(direct: Floats, excess: Floats, count: Floats) -> Floats:
    """Mean of ratios x from the sums of x and of x - 1.

    Sums of x - 1 keep their digits where a healthy run lives, close to 1; sums of x keep theirs far below it.
    """
    mean = direct / count
    return np.where(mean > NEAR_ONE, 1 + excess / count, mean)


class Spreads(NamedTuple):
    """Of N ratios x: mean, chi2 = mean(x^2) - 1 and ESS = mean(x)^2 / mean(x^2), [N, R] each."""

    mean: Floats
    chi2: Floats
    ess: Floats


def ratio_spreads(sums: Records, names: tuple[str, ...], count: Floats) -> Spreads:
    """Those of ratios by the names of their sums; `count` [N, R] or [R] says over how many."""
    direct, square, excess, excess_square = sums.rows(_sums_of(names)).reshape(4, len(names), len(sums))
    mean = ratio_mean(direct, excess, count)
    near, second = mean > NEAR_ONE, square / count
    chi2 = np.where(near, (excess_square + 2 * excess) / count, second - 1)
    return Spreads(mean, chi2, mean * mean / np.where(near, 1 + chi2, second))


def ratio_std(sums: Records, name: str, count: Floats) -> Floats:
    """The standard deviation of a ratio, of the population."""
    direct, square, excess, excess_square = sums.rows(_sums_of((name,)))
    near = ratio_mean(direct, excess, count) > NEAR_ONE
    return np.sqrt(variance(np.where(near, excess, direct), np.where(near, excess_square, square), count))


@cache
def _sums_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """The sums of x, x^2, x - 1 and (x - 1)^2 of some ratios, one of these after the other."""
    return tuple(f"{name}{of}" for of in ("", "_square", "_excess", "_excess_square") for name in names)


def _spreads(sums: Records) -> Spreads:
    """Of the weights of tokens, and of the product and the geometric ratios of sequences."""
    return ratio_spreads(sums, ("weight", "product", "geometric"), sums.rows(("tokens", "sequences", "sequences")))


def _log_ratio_variance(sums: Records) -> Floats:
    """Of a summary without the deviation, which older releases did not keep, from the sums of d and d^2."""
    count, kept = sums["tokens"], sums[DEVIATION]
    if not sums.lack(DEVIATION):
        return kept / count
    return np.where(np.isnan(kept), variance(sums["log_ratio"], sums["log_ratio_square"], count), kept / count)


def _correlation(sums: Records) -> Floats:
    """Pearson correlation of p and q; NaN where one of them does not vary beyond rounding."""
    squares = sums.rows(("p_square", "p_q", "q_square"))
    xx, xy, yy = squares - sums.rows(("p", "p", "q")) * sums.rows(("p", "q", "q")) / sums["tokens"]
    return correlations(xx, xy, yy, *(ROUNDED * squares[::2]))


def _extreme_ratio(name: str) -> Formula:
    """The ratio of an extreme log-ratio."""
    return lambda sums: bounded_exp(sums[name])


#: Figures of gaps over their tokens, as protocol.md names them.
OF_TOKENS: Final = Formulas(
    {
        "k3": ("k3", "tokens"),
        "k3_reverse": ("k3_reverse", "tokens"),
        "js": ("js", "tokens"),
        "log_ratio_mean": ("log_ratio", "tokens"),
        "abs_log_ratio_mean": ("log_ratio_abs", "tokens"),
        "tail_fraction": ("tail_tokens", "tokens"),
        "exact_fraction": ("exact_tokens", "tokens"),
        "probability_diff_mean": ("probability_diff", "tokens"),
    },
    {
        "k1": lambda sums: -sums["log_ratio"] / sums["tokens"],
        "k2": lambda sums: sums["log_ratio_square"] / (2 * sums["tokens"]),
        "ratio_mean": lambda sums: ratio_mean(sums["ratio"], sums["ratio_excess"], sums["tokens"]),
        "multiplicative_error": lambda sums: 1 + sums["multiplicative_excess"] / sums["tokens"],
        "chi2": lambda sums: sums.once(_spreads).chi2[0],
        "ess": lambda sums: sums.once(_spreads).ess[0],
        "log_ratio_std": lambda sums: np.sqrt(_log_ratio_variance(sums)),
        "log_ratio_min": lambda sums: sums["log_ratio_min"],
        "log_ratio_max": lambda sums: sums["log_ratio_max"],
        "abs_log_ratio_max": lambda sums: np.maximum(-sums["log_ratio_min"], sums["log_ratio_max"]),
        "ratio_min": _extreme_ratio("log_ratio_min"),
        "ratio_max": _extreme_ratio("log_ratio_max"),
        "probability_diff_max": lambda sums: sums["probability_diff_max"],
        "probability_diff_std": lambda sums: np.sqrt(
            variance(sums["probability_diff"], sums["probability_diff_square"], sums["tokens"])
        ),
        "probability_correlation": _correlation,
        "length_budget": lambda sums: LENGTH_BUDGET / (sums["k3"] / sums["tokens"]),
    },
)
#: And over their sequences.
OF_SEQUENCES: Final = Formulas(
    {
        "k3": ("sequence_k3", "sequences"),
        "abs_log_ratio_mean": ("sequence_log_ratio_abs", "sequences"),
        "log_geometric_ratio_mean": ("log_geometric", "sequences"),
        "log_geometric_ratio_abs_mean": ("log_geometric_abs", "sequences"),
        "log_product_ratio_mean": ("log_product", "sequences"),
        "perplexity_numerator": ("perplexity_numerator", "sequences"),
        "perplexity_denominator": ("perplexity_denominator", "sequences"),
        "log_perplexity_numerator": ("log_perplexity_numerator", "sequences"),
        "log_perplexity_denominator": ("log_perplexity_denominator", "sequences"),
        "perplexity_ratio": ("inverse_geometric", "sequences"),
    },
    {
        "k1": lambda sums: -sums["log_geometric"] / sums["sequences"],
        "geometric_ratio_mean": lambda sums: sums.once(_spreads).mean[2],
        "geometric_ratio_min": _extreme_ratio("log_geometric_min"),
        "geometric_ratio_max": _extreme_ratio("log_geometric_max"),
        "geometric_ratio_std": lambda sums: ratio_std(sums, "geometric", sums["sequences"]),
        "log_geometric_ratio_min": lambda sums: sums["log_geometric_min"],
        "log_geometric_ratio_max": lambda sums: sums["log_geometric_max"],
        "log_product_ratio_min": lambda sums: sums["log_product_min"],
        "log_product_ratio_max": lambda sums: sums["log_product_max"],
        "chi2": lambda sums: sums.once(_spreads).chi2[1],
        "ess": lambda sums: sums.once(_spreads).ess[1],
        "chi2_geometric": lambda sums: sums.once(_spreads).chi2[2],
    },
)
