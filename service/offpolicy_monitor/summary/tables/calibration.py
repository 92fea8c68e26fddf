"""Calibration of mu itself: whether the sampled tokens are as improbable as mu says that its own tokens are.

Tokens drawn from mu have -log mu equal to mu's entropy on average. Tokens that were drawn from another distribution
than the one that is reported (a temperature, a nucleus, with raw log-probs) have not, though engine and trainer agree.
Over tokens with a finite log mu and a finite entropy of the same position, of the engine or of the trainer.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from offpolicy_monitor.summary import rows as schema
from offpolicy_monitor.summary.arrays import Array, Arrays
from offpolicy_monitor.summary.figure import Figure
from offpolicy_monitor.summary.kind import Kind

PART: Final = "calibration"
#: x = -log mu - entropy of a token; X and n: the sum of x over a sequence, and its tokens.
TABLE: Final = schema.Table(
    "batch",
    (
        schema.count("calibrated_tokens", "tokens with a finite log mu and entropy", at_most="tokens"),
        schema.count("calibrated_sequences", "sequences with such a token", at_most=("sequences", "calibrated_tokens")),
        schema.number("surprise_excess", "x = -log mu - entropy"),
        schema.magnitude(
            "surprise_excess_square", "X^2, X the sum of x over a sequence",
            square_of=("calibrated_sequences", "surprise_excess"), product=True,
        ),
        schema.number(
            "surprise_excess_tokens", "X n, n the tokens of that sequence",
            product_of=("calibrated_sequences", "surprise_excess_square", "calibrated_tokens_square"),
        ),
        schema.magnitude(
            "calibrated_tokens_square", "n^2", square_of=("calibrated_sequences", "calibrated_tokens"), product=True
        ),
        schema.number("calibrated_entropy", "the entropy of these tokens"),
    ),
    "how probable mu finds what was sampled",
    part=PART,
    needs=("sampling_logprobs", "entropy"),
    since=4,
)  # fmt: skip


def calibration_sums(columns: Mapping[str, Array], offsets: Array) -> dict[str, Any]:
    """The rows of a batch: columns [T] of all tokens, offsets [S + 1]; {} where no token has both."""
    mu, entropy = columns.get("sampling_logprobs"), columns.get("entropy")
    if mu is None or entropy is None:
        return {}
    excess = np.negative(mu, dtype=np.float64) - entropy
    known = np.isfinite(excess)
    if not known.any():
        return {}
    lengths, held = np.diff(offsets), entropy
    if not known.all():
        excess, held = np.where(known, excess, 0.0), np.where(known, entropy, 0.0)
        lengths = np.diff(np.concatenate([[0], np.cumsum(known)])[offsets])
    sums = np.diff(np.concatenate([[0.0], np.cumsum(excess)])[offsets])
    return {
        "calibrated_tokens": int(lengths.sum()),
        "calibrated_sequences": int(np.count_nonzero(lengths)),
        "surprise_excess": float(sums.sum()),
        "surprise_excess_square": float(sums @ sums),
        "surprise_excess_tokens": float(sums @ lengths),
        "calibrated_tokens_square": float(lengths @ lengths.astype(np.float64)),
        "calibrated_entropy": float(held.sum(dtype=np.float64)),
    }


def calibration(arrays: Arrays) -> dict[str, Any] | None:
    """The mean of x, z of it with sequences as witnesses, and its share of the mean entropy; None without entropies.

    The standard error is that of a ratio of sums over sequences: sum (X - n mean x)^2, which is what tokens of one
    sequence that go together need. z is absent of a single sequence.
    """
    sums = arrays.record("batch")
    tokens, sequences = sums.get("calibrated_tokens", 0), sums.get("calibrated_sequences", 0)
    if not tokens:
        return None
    mean, entropy = sums["surprise_excess"] / tokens, sums["calibrated_entropy"] / tokens
    figures = {"tokens": tokens, "excess": mean, "entropy": entropy}
    if entropy > 0:
        figures["share"] = mean / entropy
    left = sums["surprise_excess_square"] - 2 * mean * sums["surprise_excess_tokens"]
    left += mean * mean * sums["calibrated_tokens_square"]
    if sequences > 1 and left > 0:
        figures["z"] = sums["surprise_excess"] / math.sqrt(left * sequences / (sequences - 1))
    return figures


FIGURES: Final = (
    Figure("tokens", "tokens", "with a log mu and an entropy of the same position", headline=True),
    Figure("excess", "nats", "mean of `-log mu` less the entropy: 0 where tokens are drawn from mu", headline=True),
    Figure("entropy", "nats", "mean over these tokens", headline=True),
    Figure("share", "", "the excess over that entropy"),
    Figure("z", "", "of the excess, over sequences", headline=True),
)

KIND: Final = Kind(
    PART, (TABLE,), calibration, FIGURES, "Only where `sampling_logprobs` and `entropy` were sent.", of_shards=True
)
