"""Figures of a gap, and of its sequences.

Notation of docs/methods.md: d = log a - log b, r = exp(d), p = exp(log a), q = exp(log b), D and L the sum and the mean
of d over a sequence, A the advantage. Means are over valid tokens, those of `sequence` over sequences with one.
Meanings are published one by one, so that none says what another one is of.
"""

from typing import Final

from offpolicy_monitor.summary.figure import Figure, Gauge, gauge, under

_SUMS: Final = "`core/gap_sums.py`"
_COLUMNS: Final = "`core/columns.py` `token_columns`"
_EXPONENTIALS: Final = "`core/divergences.py` `exponentials`"
_READ: Final = "`summary/gap.py`"
_SPREAD: Final = "`summary/gap.py` `ratio_spreads`"
_EXTREME: Final = "`summary/gap.py` `bounded_exp`"
_ADVANTAGE: Final = "`summary/tables/advantage.py` `WEIGHED`"
_SCHULMAN: Final = "Schulman 2020, *Approximating KL divergence*"
_ALL: Final = "all frameworks"
_FRAMEWORKS: Final = "TRL, slime, SkyRL"
_CLAMPED: Final = "exponent clamped at +-80"
_WEIGHT: Final = "`w = exp(clip(d, +-20))`"


def _kl(estimator: str) -> Gauge:
    return gauge("kl_nats", estimator=estimator)


_TOKENS: Final = (
    Figure("tokens", "tokens", "valid for the gap: under the mask, with both log-probs finite", _SUMS, headline=True),
    Figure("sequences", "sequences", "with at least one valid token", _SUMS, headline=True),
    Figure("k1", "nats", "mean of `-d`", _SUMS, _SCHULMAN, True, _kl("k1")),
    Figure("k2", "nats^2", "mean of `d^2 / 2`", _SUMS, _SCHULMAN, gauge=_kl("k2")),
    Figure(
        "k3", "nats", "mean of `expm1(d) - d`, with all digits for small d", _EXPONENTIALS,
        f"{_SCHULMAN}; verl, NeMo-RL, prime-rl", True, _kl("k3"),
    ),
    Figure(
        "k3_reverse", "nats", "mean of `expm1(-d) + d`", _EXPONENTIALS, "AReaL's `kl_k3`", gauge=_kl("k3_reverse")
    ),
    Figure(
        "js", "nats", "mean of `log cosh(d / 2)`, to which the usual two-term estimate reduces",
        "`core/divergences.py` `js_terms`", "NeMo-RL",
    ),
    Figure("log_ratio_mean", "nats", "mean of `d`", _SUMS, headline=True),
    Figure(
        "log_ratio_std", "nats", "standard deviation of `d`, of the population", _READ,
        headline=True, gauge=gauge("log_ratio_std_nats"),
    ),
    Figure("log_ratio_min", "nats", "the smallest `d`", _SUMS),
    Figure("log_ratio_max", "nats", "the largest `d`", _SUMS),
    Figure(
        "abs_log_ratio_mean", "nats", "mean of `abs d`", _SUMS, _FRAMEWORKS, True, gauge("log_ratio_abs_mean_nats")
    ),
    Figure(
        "abs_log_ratio_max", "nats", "the largest `abs d`", _READ, _FRAMEWORKS, True, gauge("log_ratio_abs_max_nats")
    ),
    Figure(
        "ratio_mean", "ratio", f"mean of `r`, {_CLAMPED}", _EXPONENTIALS, _ALL, True, gauge("importance_ratio_mean")
    ),
    Figure("ratio_min", "ratio", f"the smallest `r`, {_CLAMPED}", _EXTREME, _ALL, gauge=gauge("importance_ratio_min")),
    Figure(
        "ratio_max", "ratio", f"the largest `r`, {_CLAMPED}", _EXTREME, _ALL, True, gauge("importance_ratio_max")
    ),
    Figure("clamped_tokens", "tokens", "number of tokens with `abs d > 80`", _COLUMNS),
    Figure(
        "multiplicative_error", "ratio", f"mean of `exp(abs d)`, {_CLAMPED}", _COLUMNS, "NeMo-RL", True,
        gauge("multiplicative_error_mean"),
    ),
    Figure(
        "tail_fraction", "share of tokens", "share with `abs d > ln 2`", _COLUMNS, "R3", True, gauge("ratio_tail_ratio")
    ),
    Figure(
        "exact_fraction", "share of tokens", "share with `d == 0`, bitwise", _COLUMNS, "bitwise-consistent training",
        True, gauge("exact_match_ratio"),
    ),
    Figure("chi2", "", f"`mean(w^2) - 1`, {_WEIGHT}", _SPREAD, "verl", True, gauge("chi2", level="token")),
    Figure(
        "ess", "share of tokens", f"`mean(w)^2 / mean(w^2)`, {_WEIGHT}", _SPREAD, "verl", True,
        gauge("effective_sample_size_ratio", level="token"),
    ),
    Figure(
        "probability_diff_mean", "probability", "mean of `abs(p - q)`", _COLUMNS, "verl", True,
        gauge("probability_diff_mean"),
    ),
    Figure(
        "probability_diff_max", "probability", "the largest `abs(p - q)`", _SUMS, "verl",
        gauge=gauge("probability_diff_max"),
    ),
    Figure(
        "probability_diff_std", "probability", "standard deviation of `abs(p - q)`, of the population", _READ, "verl"
    ),
    Figure(
        "probability_correlation", "", "Pearson of p and q; absent where one does not vary", _READ,
        "MiniMax-M1", True, gauge("probability_correlation"),
    ),
    Figure(
        "quantiles.{quantile}", "nats", "quantile of `d`, from the histogram", "`summary/histogram.py`",
        gauge=gauge("log_ratio_quantile_nats"),
    ),
    Figure(
        "length_budget", "tokens per sequence",
        "`0.6 / k3`: tokens at which the ESS of product ratios, `exp(-2 k3 T)`, falls to 0.3", _READ,
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

_ALIKE: Final = "every sequence counts alike, however long"
_PRODUCT: Final = "`v = exp(clip(D, +-20))`, the product ratio"

_SEQUENCES: Final = (
    Figure("k1", "nats", f"mean over sequences of the sequence's mean `-d`: {_ALIKE}"),
    Figure("k3", "nats", f"mean over sequences of the sequence's mean `expm1(d) - d`: {_ALIKE}"),
    Figure("abs_log_ratio_mean", "nats", f"mean over sequences of the sequence's mean `abs d`: {_ALIKE}"),
    Figure(
        "geometric_ratio_mean", "ratio", "mean of `exp(L)`", headline=True, gauge=gauge("geometric_ratio_mean")
    ),
    Figure("geometric_ratio_min", "ratio", "the smallest `exp(L)`", gauge=gauge("geometric_ratio_min")),
    Figure("geometric_ratio_max", "ratio", "the largest `exp(L)`", gauge=gauge("geometric_ratio_max")),
    Figure("geometric_ratio_std", "ratio", "standard deviation of `exp(L)`, of the population"),
    Figure("log_geometric_ratio_mean", "nats", "mean of `L`"),
    Figure("log_geometric_ratio_min", "nats", "the smallest `L`"),
    Figure("log_geometric_ratio_max", "nats", "the largest `L`"),
    Figure("log_geometric_ratio_abs_mean", "nats", "mean of `abs L`", headline=True),
    Figure("log_product_ratio_mean", "nats", "mean of `D`"),
    Figure("log_product_ratio_min", "nats", "the smallest `D`"),
    Figure("log_product_ratio_max", "nats", "the largest `D`"),
    Figure("chi2", "", f"`mean(v^2) - 1`, {_PRODUCT}", gauge=gauge("chi2", level="sequence")),
    Figure(
        "ess", "share of sequences", f"`mean(v)^2 / mean(v^2)`, {_PRODUCT}", headline=True,
        gauge=gauge("effective_sample_size_ratio", level="sequence"),
    ),
    Figure("chi2_geometric", "", "`mean(exp(2 L)) - 1`: chi2 of the geometric ratio", source="ms-swift"),
    Figure(
        "perplexity_numerator", "", "mean over sequences of the sequence's `exp(-mean log a)`",
        gauge=gauge("perplexity"),
    ),
    Figure(
        "perplexity_denominator", "", "mean over sequences of the sequence's `exp(-mean log b)`",
        gauge=gauge("perplexity"),
    ),
    Figure("log_perplexity_numerator", "nats", "mean over sequences of the sequence's `-mean log a`"),
    Figure("log_perplexity_denominator", "nats", "mean over sequences of the sequence's `-mean log b`"),
    Figure("perplexity_ratio", "ratio", "mean of `exp(-L)`"),
    Figure(
        "cancellation", "",
        "mean of `1 - abs(sum d) / sum(abs d)`, over sequences with `sum(abs d) > 0`: 0 is drift one way, 1 is noise",
    ),
    Figure(
        "vanishing_fraction", "share of sequences",
        "share with `exp(D) < 0.1`: a product weight leaves next to nothing of them",
    ),
    Figure(
        "extreme_fraction", "share of sequences",
        "share with a token whose probabilities differ by more than 0.5 either way", headline=True,
    ),
    Figure(
        "quantiles.{quantile}", "nats", "quantile of `L`, from the histogram", gauge=gauge("geometric_ratio_quantile")
    ),
)  # fmt: skip

OF_TOKENS: Final = under("gaps.{gap}", _TOKENS)
OF_SEQUENCES: Final = under("gaps.{gap}.sequence", _SEQUENCES)
