"""Tokens of a categorical model, drawn once and used many times: what makes a healthy step cost a millisecond.

The logits are those of tests.diagnosis.model. For noise s w_i z_i on logit i the sampled token's log-ratio is, to
second order, normal with variance s^2 A about -s^2 B / 2, where A = w_c^2 (1 - p_c)^2 + sum_(i != c) p_i^2 w_i^2 and
B = sum p_i (1 - p_i) w_i^2: the mean ratio is 1 up to s^4. So a healthy step needs one normal number per token and no
logits, and measuring it, some 10 ms, is all it costs. Faults are planted in the logits of the same tokens.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from tests.diagnosis.model import Array, drawn, logits_of, normalised
from tests.diagnosis.model import _sharpness as sharpness_of

TOKENS: Final = 40_000
#: Names of noise that grows with how far a logit is below the largest, and of noise that is the same for all.
RELATIVE, EVEN = "relative", "even"


@dataclass(frozen=True, eq=False)
class Pool:
    """logits [N, V], log_mu, entropy [N] (nats), variance and loss: A and B [N] by kind of noise."""

    logits: Array
    log_mu: Array
    entropy: Array
    variance: dict[str, Array]
    loss: dict[str, Array]

    def stretches(self, lengths: Array, source: np.random.Generator) -> Array:
        """[T] tokens of the pool: a stretch for each sequence, from anywhere."""
        ends = np.cumsum(lengths)
        starts = source.integers(0, TOKENS, len(lengths))
        return np.asarray((np.arange(ends[-1]) + np.repeat(starts - ends + lengths, lengths)) % TOKENS)

    def noise(self, tokens: Array, scale: Array, kind: str, source: np.random.Generator) -> Array:
        """[T] log-ratios of the sampled tokens where logits have noise of `scale` [T], to second order."""
        spread = np.sqrt(self.variance[kind][tokens]) * source.standard_normal(len(tokens))
        return np.asarray(scale * spread - 0.5 * scale**2 * self.loss[kind][tokens])


@cache
def pool(sharper: float = 1.0) -> Pool:
    """The pool whose logits are `sharper` times as far apart: 1 has some 0.4 nats per token."""
    source = np.random.default_rng([7, round(100 * sharper)])
    logits = logits_of(sharper * sharpness_of(TOKENS, source), source)
    log_p = normalised(logits)
    chosen, p = drawn(log_p, source), np.exp(log_p)
    weights = {EVEN: np.ones_like(p), RELATIVE: logits.max(1, keepdims=True) - logits}
    return Pool(
        logits=logits,
        log_mu=np.take_along_axis(log_p, chosen, 1)[:, 0].astype(np.float64),
        entropy=-(p * log_p).sum(1),
        variance={kind: _variance(p, weight, chosen) for kind, weight in weights.items()},
        loss={kind: (p * (1 - p) * weight**2).sum(1).astype(np.float64) for kind, weight in weights.items()},
    )


def _variance(p: Array, weight: Array, chosen: Array) -> Array:
    """[N] A: what the sampled token's log-ratio varies by for noise of scale 1."""
    squares = (p * weight).astype(np.float64) ** 2
    own = np.take_along_axis(squares, chosen, 1)[:, 0]
    p_own, w_own = (np.take_along_axis(values, chosen, 1)[:, 0].astype(np.float64) for values in (p, weight))
    return np.asarray(((1 - p_own) * w_own) ** 2 + squares.sum(1) - own)
