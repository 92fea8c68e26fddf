"""Figures of a gap, and of its sequences.

Notation of docs/methods.md: d = log a - log b, r = exp(d), D and L the sum and the mean of d over a sequence, A the
advantage. Means are over valid tokens, those of `sequence` over sequences with one.
"""

from typing import Final

from offpolicy_monitor.summary.figure import Figure, Gauge, gauge, under

_SUMS: Final = "`core/gap_sums.py`"
_EXPONENTIALS: Final = "`core/divergences.py` `exponentials`"
_ADVANTAGE: Final = "`summary/tables/advantage.py` `WEIGHED`"
_SPREAD: Final = "`summary/gap.py` `ratio_spreads`"
_RATIO: Final = "`core/divergences.py` `ratio_and_excess`"
_DIFFERENCE: Final = "`core/columns.py` `token_columns`"


def _kl(estimator: str) -> Gauge:
    return gauge("kl_nats", estimator=estimator)


_COUNTS: Final = ("valid tokens; sequences with at least one", _SUMS)
_D: Final = ("`d`; the standard deviation is of the population", _SUMS)
_ABS: Final = ("`abs d`", _SUMS, "TRL, slime, SkyRL")
_R: Final = ("`r`, exponent clamped at +-80", _RATIO, "all")
_W: Final = ("`mean(w^2) - 1`, `mean(w)^2 / mean(w^2)`, `w = exp(clip(d, +-20))`", _SPREAD, "verl")
_P: Final = ("`abs(p - q)`", _DIFFERENCE, "verl")

_TOKENS: Final = (
    Figure("tokens", "tokens", *_COUNTS, headline=True),
    Figure("sequences", "sequences", *_COUNTS, headline=True),
    Figure("k1", "nats", "`-d`", _SUMS, "Schulman 2020, *Approximating KL divergence*", True, _kl("k1")),
    Figure("k2", "nats^2", "`d^2 / 2`", _SUMS, "the same", gauge=_kl("k2")),
    Figure(
        "k3", "nats", "`expm1(d) - d`, with all digits for small d", _EXPONENTIALS, "the same; verl, NeMo-RL, prime-rl",
        True, _kl("k3"),
    ),
    Figure("k3_reverse", "nats", "`expm1(-d) + d`", _EXPONENTIALS, "AReaL's `kl_k3`", gauge=_kl("k3_reverse")),
    Figure(
        "js", "nats", "`log cosh(d / 2)`, to which the usual two-term estimate reduces",
        "`core/divergences.py` `js_terms`", "NeMo-RL",
    ),
    Figure("log_ratio_mean", "nats", *_D, headline=True),
    Figure("log_ratio_std", "nats", *_D, headline=True, gauge=gauge("log_ratio_std_nats")),
    Figure("log_ratio_min", "nats", *_D),
    Figure("log_ratio_max", "nats", *_D),
    Figure("abs_log_ratio_mean", "nats", *_ABS, headline=True, gauge=gauge("log_ratio_abs_mean_nats")),
    Figure("abs_log_ratio_max", "nats", *_ABS, headline=True, gauge=gauge("log_ratio_abs_max_nats")),
    Figure("ratio_mean", "ratio", *_R, headline=True, gauge=gauge("importance_ratio_mean")),
    Figure("ratio_min", "ratio", *_R, gauge=gauge("importance_ratio_min")),
    Figure("ratio_max", "ratio", *_R, headline=True, gauge=gauge("importance_ratio_max")),
    Figure("clamped_tokens", "tokens", "number of tokens with `abs d > 80`", _SUMS),
    Figure(
        "multiplicative_error", "ratio", "`exp(abs d)`", _SUMS, "NeMo-RL", True, gauge("multiplicative_error_mean")
    ),
    Figure(
        "tail_fraction", "share of tokens", "share with `abs d > ln 2`", "`core/columns.py` `token_columns`", "R3",
        True, gauge("ratio_tail_ratio"),
    ),
    Figure(
        "exact_fraction", "share of tokens", "share with `d == 0`, bitwise", _SUMS, "bitwise-consistent training",
        True, gauge("exact_match_ratio"),
    ),
    Figure("chi2", "", *_W, True, gauge("chi2", level="token")),
    Figure("ess", "share of tokens", *_W, True, gauge("effective_sample_size_ratio", level="token")),
    Figure("probability_diff_mean", "probability", *_P, True, gauge("probability_diff_mean")),
    Figure("probability_diff_max", "probability", *_P, gauge=gauge("probability_diff_max")),
    Figure("probability_diff_std", "probability", *_P),
    Figure(
        "probability_correlation", "", "Pearson of p and q; absent where one does not vary", "`summary/gap.py`",
        "MiniMax-M1", True, gauge("probability_correlation"),
    ),
    Figure(
        "quantiles.{quantile}", "nats", "of d, from the histogram", "`summary/histogram.py`",
        gauge=gauge("log_ratio_quantile_nats"),
    ),
    Figure(
        "length_budget", "tokens per sequence",
        "`0.6 / k3`: tokens at which the ESS of product ratios, `exp(-2 k3 T)`, falls to 0.3", "`summary/gap.py`",
        gauge=gauge("length_budget_tokens"),
    ),
    Figure("advantage_weighted_excess", "", "`sum(A (r - 1)) / sum(abs A)`", _ADVANTAGE),
    Figure("advantage_second_moment", "", "`sum(A^2 r^2) / sum(A^2)`", _ADVANTAGE),
    Figure(
        "gradient_mass_top1", "share of sum abs(A r)",
        "share of `sum(abs(A r))` that the largest 1 % of tokens hold, within 1/16 of its value",
        "`summary/tables/advantage.py` `top_share`",
    ),
    Figure(
        "bad_update_fraction", "share of tokens",
        "of `total` alone: share with `A < 0` and `q - p > 0.5`: answers pushed down that the numerator hardly gives "
        "any more",
        _ADVANTAGE, "DPPO", ("total",),
    ),
    Figure(
        "outward_second_moment", "nats^2",
        "of `total` alone: mean `d^2` over tokens with `A d > 0`, whose gradient pushes them further out; 0 where "
        "there are none",
        _ADVANTAGE, "M2PO", ("total",),
    ),
)  # fmt: skip

_MEANS: Final = "means over sequences of the sequence's token means: every sequence counts alike, however long"
_PERPLEXITY: Final = "`exp(-mean log a)`, `exp(-mean log b)` over the sequence's tokens"
_LOG_PERPLEXITY: Final = "`-mean log a`, `-mean log b`"
_CHI2: Final = "of the product ratio, `exp(clip(D, +-20))`"

_SEQUENCES: Final = (
    Figure("k1", "nats", _MEANS),
    Figure("k3", "nats", _MEANS),
    Figure("abs_log_ratio_mean", "nats", _MEANS),
    Figure("geometric_ratio_mean", "ratio", "`exp(L)`", headline=True, gauge=gauge("geometric_ratio_mean")),
    Figure("geometric_ratio_min", "ratio", "`exp(L)`", gauge=gauge("geometric_ratio_min")),
    Figure("geometric_ratio_max", "ratio", "`exp(L)`", gauge=gauge("geometric_ratio_max")),
    Figure("geometric_ratio_std", "ratio", "`exp(L)`"),
    Figure("log_geometric_ratio_mean", "nats", "`L`"),
    Figure("log_geometric_ratio_min", "nats", "`L`"),
    Figure("log_geometric_ratio_max", "nats", "`L`"),
    Figure("log_geometric_ratio_abs_mean", "nats", "`abs L`", headline=True),
    Figure("log_product_ratio_mean", "nats", "`D`"),
    Figure("log_product_ratio_min", "nats", "`D`"),
    Figure("log_product_ratio_max", "nats", "`D`"),
    Figure("chi2", "", _CHI2, gauge=gauge("chi2", level="sequence")),
    Figure(
        "ess", "share of sequences", _CHI2, headline=True,
        gauge=gauge("effective_sample_size_ratio", level="sequence"),
    ),
    Figure("chi2_geometric", "", "`mean(exp(2 L)) - 1`: chi2 of the geometric ratio", source="ms-swift"),
    Figure("perplexity_numerator", "", _PERPLEXITY, gauge=gauge("perplexity")),
    Figure("perplexity_denominator", "", _PERPLEXITY, gauge=gauge("perplexity")),
    Figure("log_perplexity_numerator", "nats", _LOG_PERPLEXITY),
    Figure("log_perplexity_denominator", "nats", _LOG_PERPLEXITY),
    Figure("perplexity_ratio", "ratio", "`exp(-L)`"),
    Figure(
        "cancellation", "",
        "`1 - abs(sum d) / sum(abs d)`, over sequences with `sum(abs d) > 0`: 0 is drift one way, 1 is noise",
    ),
    Figure(
        "vanishing_fraction", "share of sequences",
        "share with `exp(D) < 0.1`: a product weight leaves next to nothing of them",
    ),
    Figure(
        "extreme_fraction", "share of sequences",
        "share with a token whose probabilities differ by more than 0.5 either way", headline=True,
    ),
    Figure("quantiles.{quantile}", "nats", "of `L`, from the histogram", gauge=gauge("geometric_ratio_quantile")),
)  # fmt: skip

OF_TOKENS: Final = under("gaps.{gap}", _TOKENS)
OF_SEQUENCES: Final = under("gaps.{gap}.sequence", _SEQUENCES)
