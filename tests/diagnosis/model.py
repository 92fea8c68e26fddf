"""Healthy batches: log-probs of a categorical model, sampled by one side and recomputed by the other with noise.

Per token there are logits over a small vocabulary whose sharpness varies along a sequence: three tokens of four are all
but certain and some are far below, as in reasoning text (0.4 nats per token). Log-probs are logit minus log-sum-exp in
float32 at logits of some 20, as kernels do it, so that near 0 they have that coarseness. It knows no fault.
"""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
VOCABULARY: Final = 64
CHUNK: Final = 20_000
POLICY_VERSION: Final = 20
REPLICAS: Final = 4
LARGEST_LAG: Final = 4
#: Noise of healthy runs: each kind as (least, most) standard deviation of a logit, drawn log-uniformly.
NOISE: Final = {
    "kernel": (0.005, 0.04),  # another kernel: the same for every logit
    "bfloat16": (0.004, 0.015),  # and in proportion to how far a logit is below the largest: improbable is noisier
    "experts": (0.008, 0.03),  # six times as much on 12 % of tokens, as where a router flips
    "sequences": (0.005, 0.04),  # some sequences noisier than others, by half a factor e
    "fp8": (0.08, 0.15),  # a coarse engine; mismatch k3 of about 5e-3
}
#: Faults are planted in these; a coarse engine hides them, and is a kind of clean batch only.
USUAL: Final = ("kernel", "bfloat16", "experts", "sequences")


@dataclass(frozen=True)
class Text:
    """Tokens of sequences before any log-prob: what a seed decides of a healthy batch.

    lengths [S]; owners, sharpness, scale [T]: sequence, scale of the logits, noise of a logit; relative: noise in
    proportion to the distance from the largest logit; lags [S]; replicas [S] or None where there is one engine.
    """

    lengths: Array
    owners: Array
    sharpness: Array
    scale: Array
    relative: float
    lags: Array
    replicas: Array | None
    advantages: Array | None

    @property
    def first(self) -> Array:
        """[S] the first token of each sequence."""
        return np.cumsum(self.lengths) - self.lengths


def text(tokens: int, kind: str, source: np.random.Generator, run: np.random.Generator) -> Text:
    """About 400 tokens per sequence; with lag, with advantages, of several replicas, by the toss of a coin each.

    `run` decides what stays from step to step: how large the noise is.
    """
    lengths = _lengths(tokens, source)
    sequences, owners = len(lengths), np.repeat(np.arange(len(lengths)), lengths)
    least, most = NOISE[kind]
    scale = np.full(tokens, math.exp(run.uniform(math.log(least), math.log(most))))
    if kind == "experts":
        scale *= np.where(source.random(tokens) < 0.12, 6.0, 1.0)
    if kind == "sequences":
        scale *= np.exp(0.5 * source.standard_normal(sequences))[owners]
    relative = 2.0 ** run.uniform(-9, -6.5) if kind == "bfloat16" else 0.0
    lags = source.integers(0, LARGEST_LAG + 1, sequences) * (source.random() < 0.5)
    replicas = np.arange(sequences) * REPLICAS // sequences if source.random() < 0.5 else None
    advantages = source.standard_normal(sequences).astype(np.float32) if source.random() < 0.5 else None
    return Text(lengths, owners, _sharpness(tokens, source), scale, relative, lags, replicas, advantages)


def _lengths(tokens: int, source: np.random.Generator) -> Array:
    sequences = max(16, tokens // 400)
    shares = np.exp(0.7 * source.standard_normal(sequences))
    ends = np.round(np.cumsum(shares) / shares.sum() * (tokens - 2 * sequences)).astype(np.int64)
    return np.diff(ends, prepend=0) + 2


def _sharpness(tokens: int, source: np.random.Generator) -> Array:
    """[T] scale of the logits: log-normal, and correlated along the tokens as hard and easy passages are."""
    smooth = np.convolve(source.standard_normal(tokens), 0.7 ** np.arange(12), mode="same") * math.sqrt(1 - 0.49)
    return np.asarray(np.exp(math.log(14.0) + 0.9 * smooth))


def logits_of(sharpness: Array, source: np.random.Generator) -> Array:
    """[n] -> [n, V] float32 logits, the largest of which are about 20."""
    raw = sharpness[:, None].astype(np.float32) * source.standard_normal((len(sharpness), VOCABULARY), np.float32)
    return np.asarray(raw - raw.max(1, keepdims=True) + np.float32(20.0))


def noisy(logits: Array, scale: Array, relative: float, source: np.random.Generator) -> Array:
    """[n, V] logits as another kernel has them: Gaussian noise of `scale` and `relative` times the distance below."""
    deviation = np.broadcast_to(scale[:, None].astype(np.float32), logits.shape)
    if relative:
        deviation = np.hypot(deviation, np.float32(relative) * (logits.max(1, keepdims=True) - logits))
    return np.asarray(logits + deviation * source.standard_normal(logits.shape, np.float32))


def normalised(logits: Array) -> Array:
    """[n, V] float32 log-probs: logit minus log-sum-exp, both float32."""
    largest = logits.max(1, keepdims=True)
    return np.asarray(logits - (largest + np.log(np.exp(logits - largest).sum(1, keepdims=True))), np.float32)


def drawn(log_probs: Array, source: np.random.Generator) -> Array:
    """[n, 1] a token of each distribution."""
    mass = np.exp(log_probs, dtype=np.float64)
    np.cumsum(mass, 1, out=mass)
    return np.asarray((mass >= source.random((len(mass), 1)) * mass[:, -1:]).argmax(1, keepdims=True))
