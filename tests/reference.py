"""The oracle of the numeric tests: every figure of a gap as a plain float64 loop over Python floats.

Written from the design pages (signals, protocol), one line a formula, as slow and as obvious as possible. It shares no
code with the package and knows neither torch nor numpy, neither blocks nor histograms.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

COLUMNS = ("sampling_logprobs", "old_logprobs", "logprobs")
GAPS = {
    "mismatch": ("old_logprobs", "sampling_logprobs"),
    "staleness": ("logprobs", "old_logprobs"),
    "total": ("logprobs", "sampling_logprobs"),
}
QUANTILES = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)


@dataclass(frozen=True)
class Sequence:
    """One sequence as sent: log-probs by name on the wire and a 0/1 mask, one entry per position; its advantage."""

    logprobs: dict[str, list[float]]
    mask: list[int]
    advantage: float | list[float] | None = None


@dataclass(frozen=True)
class Token:
    """A valid token of a gap: a, b are the log-probs of numerator and denominator, d = a - b."""

    position: int
    a: float
    b: float
    d: float
    advantage: float | None


def clip(x: float, bound: float) -> float:
    return max(-bound, min(bound, x))


def exp(x: float) -> float:
    return math.exp(clip(x, 80.0))


def k3(d: float) -> float:
    if abs(d) < 1e-4:  # expm1(d) - d would lose its digits even in float64
        return d * d / 2 + d**3 / 6 + d**4 / 24
    return math.expm1(clip(d, 80.0)) - d


def js(a: float, b: float) -> float:
    larger = max(a, b)
    if abs(a - b) < 1e-3:  # log cosh(d / 2), of which this is the series
        return (a - b) ** 2 / 8 - (a - b) ** 4 / 192
    m = larger + math.log((math.exp(a - larger) + math.exp(b - larger)) / 2)
    return 0.5 * k3(a - m) + 0.5 * k3(b - m)


def probability_difference(token: Token) -> float:
    """|e^a - e^b|, which float64 cannot subtract where the two are nearly equal."""
    if max(token.a, token.b) > 80:
        return abs(exp(token.a) - exp(token.b))
    return exp(max(token.a, token.b)) * -math.expm1(-abs(token.d))


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed)


def std(values: Iterable[float]) -> float:
    listed = list(values)
    centre = mean(listed)
    return math.sqrt(mean((x - centre) ** 2 for x in listed))


def quantile(values: Iterable[float], fraction: float) -> float:
    ordered = sorted(values)
    rank = fraction * (len(ordered) - 1)
    low, high = ordered[math.floor(rank)], ordered[math.ceil(rank)]
    return low + (high - low) * (rank - math.floor(rank))


def correlation(x: list[float], y: list[float]) -> float | None:
    if len(set(x)) == 1 or len(set(y)) == 1:
        return None
    spread = std(x) * std(y)
    if spread == 0:
        return None
    x_mean, y_mean = mean(x), mean(y)
    return mean((u - x_mean) * (v - y_mean) for u, v in zip(x, y, strict=True)) / spread


def gaps_of(sequences: list[Sequence]) -> list[str]:
    sent = set(sequences[0].logprobs) if sequences else set(COLUMNS)
    return [gap for gap, pair in GAPS.items() if sent.issuperset(pair)]


def valid_tokens(sequences: list[Sequence], gap: str, also: tuple[str, ...] = ()) -> list[list[Token]]:
    """The valid tokens of each sequence: mask 1, and a finite log-prob in both columns (and in `also`)."""
    numerator, denominator = GAPS[gap]
    found = []
    for sequence in sequences:
        tokens = []
        for position, masked_in in enumerate(sequence.mask):
            needed = [sequence.logprobs[name][position] for name in (numerator, denominator, *also)]
            if masked_in and all(math.isfinite(value) for value in needed):
                advantage = sequence.advantage
                own = advantage[position] if isinstance(advantage, list) else advantage
                tokens.append(Token(position, needed[0], needed[1], needed[0] - needed[1], own))
        found.append(tokens)
    return found


def gap_figures(sequences: list[Sequence], gap: str) -> dict[str, Any]:
    filled = [tokens for tokens in valid_tokens(sequences, gap) if tokens]
    tokens = [token for sequence in filled for token in sequence]
    if not tokens:
        return {"tokens": 0, "sequences": 0}
    d = [token.d for token in tokens]
    p, q = [exp(token.a) for token in tokens], [exp(token.b) for token in tokens]
    difference = [probability_difference(token) for token in tokens]
    w = [math.exp(clip(x, 20.0)) for x in d]
    return {
        "tokens": len(d),
        "sequences": len(filled),
        "k1": mean(-x for x in d),
        "k2": mean(x * x / 2 for x in d),
        "k3": mean(k3(x) for x in d),
        "k3_reverse": mean(k3(-x) for x in d),
        "js": mean(js(token.a, token.b) for token in tokens),
        "log_ratio_mean": mean(d),
        "log_ratio_std": std(d),
        "log_ratio_min": min(d),
        "log_ratio_max": max(d),
        "abs_log_ratio_mean": mean(abs(x) for x in d),
        "abs_log_ratio_max": max(abs(x) for x in d),
        "ratio_mean": mean(exp(x) for x in d),
        "ratio_min": min(exp(x) for x in d),
        "ratio_max": max(exp(x) for x in d),
        "multiplicative_error": mean(exp(abs(x)) for x in d),
        "tail_fraction": mean(abs(x) > math.log(2) for x in d),
        "chi2": mean(x * x for x in w) - 1,
        "ess": mean(w) ** 2 / mean(x * x for x in w),
        "probability_diff_mean": mean(difference),
        "probability_diff_max": max(difference),
        "probability_diff_std": std(difference),
        "probability_correlation": correlation(p, q),
        "exact_fraction": mean(x == 0 for x in d),
        "clamped_tokens": sum(abs(x) > 80 for x in d),
        "quantiles": {str(fraction): quantile(d, fraction) for fraction in QUANTILES},
        "sequence": sequence_figures(filled),
    }


def sequence_figures(filled: list[list[Token]]) -> dict[str, Any]:
    def each(figure: Callable[[Token], float]) -> list[float]:
        return [mean(figure(token) for token in tokens) for tokens in filled]

    log_geometric = each(lambda token: token.d)
    geometric = [exp(x) for x in log_geometric]
    log_product = [math.fsum(token.d for token in tokens) for tokens in filled]
    v = [math.exp(clip(x, 20.0)) for x in log_product]
    numerator, denominator = each(lambda token: -token.a), each(lambda token: -token.b)
    return {
        "k1": mean(-x for x in log_geometric),
        "k3": mean(each(lambda token: k3(token.d))),
        "abs_log_ratio_mean": mean(each(lambda token: abs(token.d))),
        "geometric_ratio_mean": mean(geometric),
        "geometric_ratio_min": min(geometric),
        "geometric_ratio_max": max(geometric),
        "geometric_ratio_std": std(geometric),
        "log_geometric_ratio_mean": mean(log_geometric),
        "log_geometric_ratio_abs_mean": mean(abs(x) for x in log_geometric),
        "log_geometric_ratio_min": min(log_geometric),
        "log_geometric_ratio_max": max(log_geometric),
        "log_product_ratio_mean": mean(log_product),
        "log_product_ratio_min": min(log_product),
        "log_product_ratio_max": max(log_product),
        "chi2": mean(x * x for x in v) - 1,
        "ess": mean(v) ** 2 / mean(x * x for x in v),
        "chi2_geometric": mean(math.expm1(2 * clip(x, 80.0)) for x in log_geometric),
        "perplexity_numerator": mean(exp(x) for x in numerator),
        "perplexity_denominator": mean(exp(x) for x in denominator),
        "log_perplexity_numerator": mean(numerator),
        "log_perplexity_denominator": mean(denominator),
        "perplexity_ratio": mean(exp(-x) for x in log_geometric),
        "quantiles": {str(fraction): quantile(log_geometric, fraction) for fraction in QUANTILES},
    }


def attribution(sequences: list[Sequence]) -> dict[str, float] | None:
    """Shares of E[total^2] over tokens whose three log-probs are finite; None where there is nothing to share."""
    pairs = [
        (old - mu, pi - old)
        for sequence in sequences
        for masked_in, mu, old, pi in zip(sequence.mask, *(sequence.logprobs[name] for name in COLUMNS), strict=True)
        if masked_in and all(math.isfinite(value) for value in (mu, old, pi))
    ]
    parts = {
        "mismatch": math.fsum(m * m for m, _ in pairs),
        "staleness": math.fsum(s * s for _, s in pairs),
        "interaction": math.fsum(2 * m * s for m, s in pairs),
    }
    total = math.fsum(parts.values())
    return {name: part / total for name, part in parts.items()} if total > 0 else None


def batch_counts(sequences: list[Sequence]) -> dict[str, Any]:
    """The counts of the whole answer: what was sent, what is excluded and what is suspect."""
    tokens = [
        {name: values[position] for name, values in sequence.logprobs.items()}
        for sequence in sequences
        for position, masked_in in enumerate(sequence.mask)
        if masked_in
    ]
    return {
        "tokens": len(tokens),
        "sequences": len(sequences),
        "empty_sequences": sum(not any(sequence.mask) for sequence in sequences),
        "excluded_tokens": {"nonfinite": sum(not all(map(math.isfinite, token.values())) for token in tokens)},
        "suspect_tokens": {
            "positive": sum(any(0 < x < math.inf for x in token.values()) for token in tokens),
            "exact_zero": sum(token.get("sampling_logprobs") == 0 for token in tokens),
        },
    }
