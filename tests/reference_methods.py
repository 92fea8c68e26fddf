"""The oracle's other half: what every method of the catalogue keeps, weighs and counts, token by token; and CASES, the
thresholds that it is tried at. A new method is added here, and nowhere else in the tests.

Written from the design's methods page. A statistic so close to its threshold that float32 and float64 may decide
differently makes the outcome `doubtful`: the contract leaves it open then, and tests do not compare it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tests.reference import Sequence, Token, clip, exp, k3, mean, quantile, std, valid_tokens

SIGNED = {"opsm", "ppo_clip", "dppo", "m2po_paper", "vaco", "cppo"}
TWO_SIDED = {"mask", "ppo_clip", "dppo", "ipo", "seq_mis"}
WEIGHED = {"truncate", "cispo", "seq_mis"}
#: The contract lets a mask differ where a statistic lies within this of its threshold, relatively.
CLOSE = 1e-6
#: A float32 subtraction rounds d by at most this, relatively.
ROUNDING = 1.2e-7


BOTH: Final = {"lower": 0.95, "upper": 1.05}
RATIO_BOUNDS: Final = ({"lower": 0.9}, {"upper": 1.02}, BOTH, {"lower": 0.0, "upper": 0.0}, {"lower": 1e30})


def sides(*pairs: tuple[float, float]) -> tuple[dict[str, float], ...]:
    """Thresholds below and above."""
    return tuple({"lower": low, "upper": high} for low, high in pairs)


def each(name: str, *values: float) -> tuple[dict[str, float], ...]:
    """One threshold at these values."""
    return tuple({name: value} for value in values)


class Case(NamedTuple):
    """The gap of a method unless a row says another, and thresholds that drop nothing, everything, and a part; the
    first of them have nothing but what is required.
    """

    gap: str
    thresholds: tuple[dict[str, float], ...]


CASES: Final[Mapping[str, Case]] = {
    "truncate": Case("mismatch", RATIO_BOUNDS[:4]),
    "mask": Case("mismatch", RATIO_BOUNDS),
    "veto": Case("mismatch", RATIO_BOUNDS),
    "opsm": Case("total", each("delta", 0.0, 1e-3, 0.02, 0.5)),
    "ppo_clip": Case("staleness", sides((0.0, 0.0), (3e-4, 4e-4), (0.05, 0.3), (2.0, 9.0))),
    "cispo": Case("staleness", sides((1.0, 4.0), (0.02, 0.03), (0.0, 0.0))),
    "dppo": Case("total", sides((0.0, 0.0), (1e-4, 1e-3), (0.01, 0.02), (1.0, 1.0))),
    "ipo": Case("total", each("threshold", 0.0, 0.02, 1.0)),
    "m2po": Case("mismatch", each("threshold", 0.0, 1e-3, 0.04, 10.0)),
    "trm": Case(
        "total", tuple({"max": k2, "mean": k3} for k2, k3 in ((0.0, 9.0), (9.0, 1e-3), (0.01, 0.01), (9.0, 9.0)))
    ),
    "kpop": Case("total", each("phi", 0.0, 1e-3, 2.0)),
    "seq_error": Case("mismatch", each("threshold", 0.0, 1.05, 9.0)),
    "m2po_paper": Case("total", each("threshold", 0.0, 1e-3, 0.04, 10.0)),
    "vaco": Case("total", each("threshold", 0.0, 0.02, 0.04, 9.0)),
    "cppo": Case(
        "total",
        (
            *each("delta", 0.0, 1e-3, 0.02, 1.0),
            {"delta": 0.01, "budget": 1e-3},
            {"delta": 0.01, "budget": 0.0, "budget_max": 1.0, "w_min": 0.0},
            {"delta": 0.02, "budget": 2e-3, "budget_max": 2e-3, "w_min": 1.0},
        ),
    ),
    "seq_mis": Case("total", RATIO_BOUNDS),
}


@dataclass
class Verdict:
    """On one token: dropped on the low side, on the high side, or on no side; weight of a truncation."""

    low: bool = False
    high: bool = False
    dropped: bool = False
    weight: float | None = None
    truncated: bool = False


@dataclass
class Outcome:
    """What a row does: figures of the contract, 0/1 and weights per position (None: no weight method)."""

    figures: dict[str, Any]
    keep: list[list[int]]
    weights: list[list[float]] | None
    doubtful: bool


@dataclass
class Scale:
    """Compares, and remembers whether a comparison was too close to call. `noise` is absolute."""

    doubtful: bool = False

    def above(self, x: float, threshold: float, noise: float = 0.0) -> bool:
        certain = (x == 0 and threshold == 0) or math.isinf(threshold)
        if not certain and abs(x - threshold) <= CLOSE * abs(threshold) + noise:
            self.doubtful = True
        return x > threshold

    def below(self, x: float, threshold: float, noise: float = 0.0) -> bool:
        return self.above(-x, -threshold, noise)

    def ratio_above(self, log_x: float, threshold: float, size: float) -> bool:
        """exp(log_x) > threshold; `size` is the sum of |d| that went into log_x."""
        return self.above(log_x, log(threshold), CLOSE + ROUNDING * size)

    def ratio_below(self, log_x: float, threshold: float, size: float) -> bool:
        return self.below(log_x, log(threshold), CLOSE + ROUNDING * size)


def log(ratio: float) -> float:
    return math.log(ratio) if ratio > 0 else -math.inf


def binary_kl(log_q: float, log_p: float) -> float:
    """q (log q - log p) + (1-q) (log(1-q) - log(1-p)); for near policies q k3(log p/q) + (1-q) k3(log (1-p)/(1-q)).

    The two are equal; the second has no cancellation. A zero 1-p gives +inf unless 1-q is zero too.
    """
    log_q, log_p = min(log_q, 0.0), min(log_p, 0.0)
    q, q_rest, p_rest = math.exp(log_q), -math.expm1(log_q), -math.expm1(log_p)
    if q_rest == 0:
        return q * (log_q - log_p)
    if p_rest == 0:
        return math.inf
    if abs(log_p - log_q) < 0.5:
        rest_moved = -q * math.expm1(log_p - log_q) / q_rest  # ((1-p) - (1-q)) / (1-q)
        if abs(rest_moved) < 0.5:
            return q * k3(log_p - log_q) + q_rest * k3(math.log1p(rest_moved))
    return q * (log_q - log_p) + q_rest * (log_complement(log_q) - log_complement(log_p))


def log_complement(log_p: float) -> float:
    """log(1 - p), to all digits near p = 0 and near p = 1."""
    return math.log1p(-math.exp(log_p)) if log_p < -0.7 else math.log(-math.expm1(log_p))


def level_log_ratios(level: str, tokens: list[Token]) -> list[tuple[float, float]]:
    """For each token the log of the ratio at a level, and the sum of |d| behind it (its rounding scale)."""
    if level == "token":
        return [(token.d, abs(token.d)) for token in tokens]
    total, size = math.fsum(token.d for token in tokens), math.fsum(abs(token.d) for token in tokens)
    one = (total, size) if level == "sequence" else (total / len(tokens), size / len(tokens))
    return [one] * len(tokens)


def truncate(row: Mapping[str, Any], tokens: list[Token], scale: Scale) -> list[Verdict]:
    low, high = row.get("lower"), row.get("upper")
    verdicts = []
    for value, size in level_log_ratios(row["level"], tokens):
        truncated = low is not None and scale.ratio_below(value, low, size)
        truncated |= high is not None and scale.ratio_above(value, high, size)
        weight = max(exp(value), -math.inf if low is None else low)
        verdicts.append(Verdict(weight=min(weight, math.inf if high is None else high), truncated=truncated))
    return verdicts


def cispo(row: Mapping[str, Any], tokens: list[Token], scale: Scale) -> list[Verdict]:
    bounds = {"level": "token", "lower": max(0.0, 1 - row["lower"]), "upper": 1 + row["upper"]}
    return truncate(bounds, tokens, scale)


def mask(row: Mapping[str, Any], tokens: list[Token], scale: Scale) -> list[Verdict]:
    low, high = row.get("lower"), row.get("upper")
    verdicts = []
    if row.get("statistic", "ratio") == "ratio":
        for value, size in level_log_ratios(row["level"], tokens):
            below = low is not None and scale.ratio_below(value, low, size)
            above = high is not None and scale.ratio_above(value, high, size)
            verdicts.append(Verdict(below, above, below or above))
        return verdicts
    for value, noise in k_statistics(row, tokens):
        below = low is not None and scale.below(value, low, noise)
        above = high is not None and scale.above(value, high, noise)
        verdicts.append(Verdict(dropped=below or above))
    return verdicts


K_STATISTICS: dict[str, Callable[[float], float]] = {"k1": lambda d: -d, "k2": lambda d: d * d / 2, "k3": k3}
#: How far a relative change of d moves each of them.
K_SLOPES: dict[str, Callable[[float], float]] = {"k1": abs, "k2": lambda d: d * d, "k3": lambda d: abs(d) * exp(d)}
REDUCTIONS: dict[str, Callable[[list[float]], float]] = {
    "mean": mean,
    "max": lambda values: max(values),
    "sum": math.fsum,
}


def k_statistics(row: Mapping[str, Any], tokens: list[Token]) -> list[tuple[float, float]]:
    """For each token k1, k2 or k3 at the row's level, and its rounding."""
    values = [K_STATISTICS[row["statistic"]](token.d) for token in tokens]
    noise = [ROUNDING * K_SLOPES[row["statistic"]](token.d) for token in tokens]
    if row["level"] == "token":
        return list(zip(values, noise, strict=True))
    reduce = REDUCTIONS[row.get("reduce", "mean")]
    return [(reduce(values), reduce(noise))] * len(tokens)


def veto(row: Mapping[str, Any], tokens: list[Token], scale: Scale) -> list[Verdict]:
    low, high = row.get("lower"), row.get("upper")
    hit = [low is not None and scale.ratio_below(t.d, low, abs(t.d)) for t in tokens]
    hit += [high is not None and scale.ratio_above(t.d, high, abs(t.d)) for t in tokens]
    return [Verdict(dropped=any(hit))] * len(tokens)


def opsm(row: Mapping[str, Any], tokens: list[Token], scale: Scale) -> list[Verdict]:
    verdicts = []
    for token, (value, size) in zip(tokens, level_log_ratios("geometric", tokens), strict=True):
        far = scale.above(-value, row["delta"], ROUNDING * size)
        verdicts.append(Verdict(dropped=far and advantage(token) < 0))
    return verdicts


def ppo_clip(row: Mapping[str, Any], tokens: list[Token], scale: Scale) -> list[Verdict]:
    verdicts = []
    for token, (value, size) in zip(tokens, level_log_ratios(row["level"], tokens), strict=True):
        high = advantage(token) > 0 and scale.ratio_above(value, 1 + row["upper"], size)
        low = advantage(token) < 0 and scale.ratio_below(value, 1 - row["lower"], size)
        verdicts.append(Verdict(low, high, low or high))
    return verdicts


def dppo(row: Mapping[str, Any], tokens: list[Token], scale: Scale) -> list[Verdict]:
    verdicts = []
    for token in tokens:
        rises = advantage(token) > 0
        falls = advantage(token) < 0 or (row.get("zero_advantage") == "negative" and not rises)
        if row.get("divergence", "tv") == "tv":
            moved = exp(token.a) - exp(token.b)
            high = rises and scale.above(moved, row["upper"])
            low = falls and scale.below(moved, -row["lower"])
        else:
            kl = binary_kl(token.b, token.a)
            high = rises and token.d > 0 and scale.above(kl, row["upper"])
            low = falls and token.d < 0 and scale.above(kl, row["lower"])
        verdicts.append(Verdict(low, high, low or high))
    return verdicts


def ipo(row: Mapping[str, Any], tokens: list[Token], scale: Scale) -> list[Verdict]:
    verdicts = []
    for token in tokens:
        moved = exp(token.a) - exp(token.b)
        low, high = scale.below(moved, -row["threshold"]), scale.above(moved, row["threshold"])
        verdicts.append(Verdict(low, high, low or high))
    return verdicts


def trm(row: Mapping[str, Any], tokens: list[Token], scale: Scale) -> list[Verdict]:
    far = [scale.above(t.d * t.d / 2, row["max"]) for t in tokens]
    noise = ROUNDING * mean(abs(t.d) * exp(t.d) for t in tokens)
    on_average = scale.above(mean(k3(t.d) for t in tokens), row["mean"], noise)
    return [Verdict(dropped=any(far) or on_average)] * len(tokens)


def kpop(row: Mapping[str, Any], tokens: list[Token], scale: Scale) -> list[Verdict]:
    larger = [max(binary_kl(token.b, token.a), binary_kl(token.a, token.b)) for token in tokens]
    return [Verdict(dropped=scale.above(kl, row["phi"])) for kl in larger]


def seq_error(row: Mapping[str, Any], tokens: list[Token], scale: Scale) -> list[Verdict]:
    noise = ROUNDING * mean(abs(t.d) * exp(abs(t.d)) for t in tokens)
    dropped = scale.above(mean(exp(abs(t.d)) for t in tokens), row["threshold"], noise)
    return [Verdict(dropped=dropped)] * len(tokens)


def outward(token: Token) -> bool:
    """Whether the token's update takes the policy further away."""
    return advantage(token) * token.d > 0


def vaco(row: Mapping[str, Any], tokens: list[Token], scale: Scale) -> list[Verdict]:
    noise = ROUNDING * mean(abs(t.d) * exp(t.d) for t in tokens)
    far = scale.above(mean(abs(math.expm1(clip(t.d, 80.0))) for t in tokens), row["threshold"], noise)
    return [Verdict(dropped=far and outward(token)) for token in tokens]


def cppo(row: Mapping[str, Any], tokens: list[Token], scale: Scale) -> list[Verdict]:
    """Algorithm 1 of the paper, token by token, with the budget of its experiments on base models."""
    least, last = row.get("budget", 0.02), row.get("w_min", 0.8)
    moved = [abs(exp(token.a) - exp(token.b)) for token in tokens]
    budget = min(max(quantile(moved, 0.9), least), row.get("budget_max", 2 * least))
    verdicts, spent, weights = [], 0.0, 0.0
    for position, (token, distance) in enumerate(zip(tokens, moved, strict=True)):
        weight = 1 - (1 - last) / max(len(tokens) - 1, 1) * position
        allowed = min(row["delta"], row["delta"] + budget * weights - spent)
        far = outward(token) and scale.above(weight * distance, allowed, 1e-12 * (1 + spent))
        verdicts.append(Verdict(dropped=far))
        spent, weights = spent + weight * distance, weights + weight
    return verdicts


def seq_mis(row: Mapping[str, Any], tokens: list[Token], scale: Scale) -> list[Verdict]:
    product = exp(math.fsum(token.d for token in tokens))
    verdicts = mask({**row, "level": "geometric"}, tokens, scale)
    for verdict in verdicts:
        verdict.weight = 0.0 if verdict.dropped else product
    return verdicts


Rule = Callable[[Mapping[str, Any], list[Token], Scale], list[Verdict]]
RULES: dict[str, Rule] = {
    "truncate": truncate,
    "mask": mask,
    "veto": veto,
    "opsm": opsm,
    "ppo_clip": ppo_clip,
    "cispo": cispo,
    "dppo": dppo,
    "ipo": ipo,
    "trm": trm,
    "kpop": kpop,
    "seq_error": seq_error,
    "vaco": vaco,
    "cppo": cppo,
    "seq_mis": seq_mis,
}


def advantage(token: Token) -> float:
    assert token.advantage is not None
    return token.advantage


def m2po_verdicts(
    threshold: float, request: list[list[Token]], scale: Scale, among: Callable[[Token], bool]
) -> list[list[Verdict]]:
    """Drop the token of largest d^2 of the whole request, again and again, while the mean of the rest is too large.

    Only some tokens are looked at, and the mean is theirs. Among equals the earlier token goes first.
    """
    verdicts = [[Verdict() for _ in tokens] for tokens in request]
    rest = [(-(token.d**2), i, j) for i, tokens in enumerate(request) for j, token in enumerate(tokens) if among(token)]
    rest.sort()
    total = math.fsum(-entry[0] for entry in rest)
    for left, (negative_square, i, j) in zip(range(len(rest), 0, -1), rest, strict=True):
        noise = 2 * ROUNDING * total / left
        if not scale.above(total / left, threshold, noise):
            break
        verdicts[i][j].dropped = True
        total = math.fsum(-entry[0] for entry in rest[len(rest) - left + 1 :])
        following = rest[len(rest) - left + 1] if left > 1 else None
        if following is not None and 0 < following[0] - negative_square <= 4 * ROUNDING * -negative_square:
            scale.doubtful = True
    return verdicts


def outcome(sequences: list[Sequence], row: Mapping[str, Any]) -> Outcome | None:
    """What a row (method, gap, level, parameters) does to a batch; None where its advantages were not sent."""
    with_advantages = bool(sequences) and sequences[0].advantage is not None
    if row["method"] in SIGNED and not with_advantages:
        return None
    scale, request = Scale(), valid_tokens(sequences, row["gap"])
    if row["method"] in ("m2po", "m2po_paper"):
        among = outward if row["method"] == "m2po_paper" else lambda token: True
        verdicts = m2po_verdicts(row["threshold"], request, scale, among)
    else:
        rule = RULES[row["method"]]
        verdicts = [rule(row, tokens, scale) if tokens else [] for tokens in request]
    keep = [[0] * len(sequence.mask) for sequence in sequences]
    weights = [[0.0] * len(sequence.mask) for sequence in sequences]
    for tokens, decided, kept, weighed in zip(request, verdicts, keep, weights, strict=True):
        for token, verdict in zip(tokens, decided, strict=True):
            kept[token.position] = int(not verdict.dropped)
            weighed[token.position] = 0.0 if verdict.weight is None else verdict.weight
    figures = method_figures(row, request, verdicts, with_advantages)
    return Outcome(figures, keep, weights if row["method"] in WEIGHED else None, scale.doubtful)


def method_figures(
    row: Mapping[str, Any], request: list[list[Token]], verdicts: list[list[Verdict]], with_advantages: bool
) -> dict[str, Any]:
    pairs = [
        pair for tokens, decided in zip(request, verdicts, strict=True) for pair in zip(tokens, decided, strict=True)
    ]
    filled = [decided for decided in verdicts if decided]
    dropped = [token for token, verdict in pairs if verdict.dropped]
    kept = [token for token, verdict in pairs if not verdict.dropped]
    figures: dict[str, Any] = {
        "tokens": len(pairs),
        "sequences": len(filled),
        "masked_tokens": len(dropped),
        "masked_sequences": sum(all(v.dropped for v in decided) for decided in filled),
        "touched_sequences": sum(any(v.dropped for v in decided) for decided in filled),
    }
    if row["method"] in TWO_SIDED and row.get("statistic", "ratio") == "ratio":
        figures["masked_low_tokens"] = sum(verdict.low for _, verdict in pairs)
        figures["masked_high_tokens"] = sum(verdict.high for _, verdict in pairs)
    if not pairs:
        return figures
    figures["masked_token_fraction"] = len(dropped) / len(pairs)
    figures["masked_sequence_fraction"] = figures["masked_sequences"] / len(filled)
    if with_advantages:
        mass = math.fsum(abs(advantage(token)) for token, _ in pairs)
        masked = math.fsum(abs(advantage(token)) for token in dropped)
        figures["masked_advantage_mass"] = masked / mass if mass else None
    figures["k3_kept"] = mean(k3(token.d) for token in kept) if kept else None
    figures["k3_masked"] = mean(k3(token.d) for token in dropped) if dropped else None
    figures["k2_kept"] = mean(token.d**2 / 2 for token in kept) if kept else None
    if "kl_tau" in row:
        figures["kl_term_kept"] = row["kl_tau"] * mean(token.d**2 for token in kept) if kept else None
        figures["kl_term_all"] = row["kl_tau"] * mean(token.d**2 for token, _ in pairs)
    weights = [verdict.weight for _, verdict in pairs if verdict.weight is not None]
    if weights:
        square = mean(w * w for w in weights)
        figures["weight_mean"] = mean(weights)
        figures["weight_std"] = std(weights)
        figures["weight_max"] = max(weights)
        figures["weight_ess"] = mean(weights) ** 2 / square if square else None
        figures["truncated_token_fraction"] = mean(verdict.truncated for _, verdict in pairs)
    return figures
