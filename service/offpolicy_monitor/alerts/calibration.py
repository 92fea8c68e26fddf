"""Calibration of mu: whether its mean ratio is 1, and whether what was sampled is as improbable as its entropy says.

Tokens drawn from mu have -log mu equal to mu's entropy in the mean. Where they are drawn with a temperature or a
nucleus that the reported log-probs do not have, no ratio shows it, and this does. One step has too few sequences.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from offpolicy_monitor.alerts.history import History
from offpolicy_monitor.alerts.rule import Compared, Terms

#: Steps that are pooled, and without how many nothing is said.
WINDOW, LEAST = 10, 5
#: Standard errors from which on it is no chance: none of 60,000 healthy steps, drawn anew, had so many.
CERTAIN: Final = 5.0
TOKENS, EXCESS, ENTROPY, Z = (f"calibration.{name}" for name in ("tokens", "excess", "entropy", "z"))
INPUTS: Final = (TOKENS, EXCESS, ENTROPY, Z)


def miscalibration(gap: str) -> Compared:
    """|mean r - 1|, 0 where it is within five standard errors of 1: var r = 1 + chi2 - (mean r)^2 over the tokens."""

    def compared(history: History, terms: Terms, index: int) -> float:
        ratio, chi2, tokens = (history.value(f"gaps.{gap}.{name}", index) for name in ("ratio_mean", "chi2", "tokens"))
        if math.isnan(ratio):
            return math.nan
        variance = 1 + chi2 - ratio**2
        # Without tokens, or without chi2, there is no error to be beyond.
        beyond = tokens > 0 and abs(ratio - 1) > 5 * math.sqrt((variance if not variance < 0 else 0.0) / tokens)
        return abs(ratio - 1) if beyond else 0.0

    return compared


class Pooled(NamedTuple):
    """Over steps: the mean excess of -log mu over the entropy, its standard error, the mean entropy, all in nats, and
    the tokens.
    """

    excess: float
    error: float
    entropy: float
    tokens: float


def pooled(history: History, index: int) -> Pooled | None:
    """Of the last WINDOW steps, which differ by chance independently; None where fewer than LEAST have a z."""
    lately = slice(max(0, index + 1 - WINDOW), index + 1)
    rows = [row for row in zip(*(history.column(path)[lately] for path in INPUTS), strict=True) if row[3] and _all(row)]
    tokens = sum(row[0] for row in rows)
    if len(rows) < LEAST or not tokens > 0:
        return None
    excess, entropy = (sum(row[0] * row[at] for row in rows) / tokens for at in (1, 2))
    error = math.sqrt(sum((count * mean / z) ** 2 for count, mean, _, z in rows)) / tokens
    return Pooled(excess, error, entropy, tokens)


def uncalibrated(k3: Sequence[str]) -> Compared:
    """The excess, without its sign, as a share of the entropy, beyond what the gap between engine and trainer allows; 0
    where it is within CERTAIN standard errors.

    Entropies are the engine's, or of a policy that the trainer has: by Cauchy and Schwarz these may be off by
    sqrt(2 k3) standard deviations of a token, for the larger k3 of each step, in the mean.
    """

    def compared(history: History, terms: Terms, index: int) -> float:
        found = None if math.isnan(history.value(Z, index)) else pooled(history, index)
        if found is None:
            return math.nan
        if not abs(found.excess) > CERTAIN * found.error:
            return 0.0
        spread = found.error * math.sqrt(found.tokens)
        beyond = abs(found.excess) - math.sqrt(2 * _distance(history, k3, index)) * spread
        return max(0.0, beyond) / found.entropy if found.entropy > 0 else 0.0

    return compared


def told(history: History, terms: Terms, index: int) -> str:
    """`Sampled tokens are more probable than ...: -log mu is 0.31 nats in the mean of 10 steps, the entropy 0.39.`"""
    found = pooled(history, index)
    assert found is not None, "a step that breaches has what it breaches by"
    way, surprise = "more" if found.excess < 0 else "less", found.entropy + found.excess
    return (
        f"Sampled tokens are {way} probable than the reported log-probs say: over {WINDOW} steps -log mu is "
        f"{surprise:.3g} nats in the mean, and the entropy of the same positions {found.entropy:.3g} "
        f"(z {found.excess / found.error:.1f}). They were drawn with a temperature or a nucleus that log-probs lack."
    )


def _distance(history: History, paths: Sequence[str], index: int) -> float:
    """The mean over the window of a step's largest k3; infinity where one is below 0, as clamped ratios make it."""
    lately = slice(max(0, index + 1 - WINDOW), index + 1)
    known = [
        list(filter(_is, values)) for values in zip(*(history.column(path)[lately] for path in paths), strict=True)
    ]
    largest = [math.inf if min(values) < 0 else max(values) for values in known if values]
    return sum(largest) / max(1, len(largest))


def _all(row: Sequence[float]) -> bool:
    return all(map(_is, row))


def _is(value: float) -> bool:
    return value == value
