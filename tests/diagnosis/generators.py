"""Batches with a known bug: log-probs of a categorical model, with the bug planted in the distribution itself.

Per token there are logits over a small vocabulary whose sharpness varies along a sequence, so that most log-probs lie
near 0 and a few far below, as those of language models do. The engine (mu) samples; the trainer (pi_old) recomputes
with noise in its logits. Seeded: the same arguments give the same batch.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from offpolicy_monitor.batch import Origin, RaggedBatch

Array = NDArray[Any]
VOCABULARY: Final = 96
CHUNK: Final = 20_000
SIZES: Final = {"small": 2_000, "middle": 20_000, "large": 200_000}
STRENGTHS: Final = ("weak", "medium", "strong")
POLICY_VERSION: Final = 20
#: What each bug's strength means, weak to strong.
FAULTS: Final[Mapping[str, tuple[float, float, float]]] = {
    "top_p": (0.98, 0.95, 0.9),  # p of the nucleus
    "temperature": (0.95, 0.9, 0.8),  # of the sampler, or its inverse; the trainer's is 1
    "off_by_one": (0.1, 0.5, 1.0),  # share of sequences that are shifted
    "stale_weights": (0.03, 0.1, 0.3),  # drift of the logits a version
    "copied": (0.6, 0.9, 1.0),  # share of sequences that are copied
    "quantised": (2.0**-6, 2.0**-4, 2.0**-3),  # step of the grid
    "first_token": (1.0, 2.0, 4.0),  # change of the first token's logits
    "low_probability_tail": (0.25, 0.5, 1.0),  # logits added to the engine's improbable tokens
    "routing": (0.3, 0.6, 1.2),  # change of the logits where experts differ
}
CLEAN: Final = "noise"


@dataclass(frozen=True)
class Generated:
    """A batch with its origin, and what is wrong with it."""

    batch: RaggedBatch
    origin: Origin
    fault: str


def generate(fault: str, strength: str, tokens: int, seed: int) -> Generated:
    """A batch of about `tokens` tokens with `fault` (CLEAN for none)."""
    source = np.random.default_rng([seed, tokens, [CLEAN, *FAULTS].index(fault), STRENGTHS.index(strength)])
    lengths = _lengths(tokens, source)
    size = FAULTS[fault][STRENGTHS.index(strength)] if fault in FAULTS else 0.0
    noise = math.exp(source.uniform(math.log(0.005), math.log(0.04)))
    first = np.cumsum(lengths) - lengths
    owners = np.repeat(np.arange(len(lengths)), lengths)
    state = _State(fault, size, noise, _sharpness(lengths, source), source)
    state.first = np.isin(np.arange(tokens), first)
    versions = POLICY_VERSION - source.integers(0, 5, len(lengths)) * (source.random(len(lengths)) < 0.5)
    state.lags = (POLICY_VERSION - versions)[owners]
    state.rerouted = source.random(tokens) < 0.15
    parts = [_log_probs(state, slice(start, min(start + CHUNK, tokens))) for start in range(0, tokens, CHUNK)]
    mu, old = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
    mu, old = _of_batch(fault, size, mu, old, owners, source)
    columns: dict[str, Array] = {"sampling_logprobs": mu.astype(np.float32), "old_logprobs": old.astype(np.float32)}
    if fault == "routing":
        columns |= _experts(state.rerouted, source)
    batch = RaggedBatch.from_positions(lengths, columns, {"policy_versions": versions})
    return Generated(batch, Origin(POLICY_VERSION, 0, {}), fault)


class _State:
    """What the chunks of a batch share."""

    def __init__(self, fault: str, size: float, noise: float, sharpness: Array, source: np.random.Generator) -> None:
        self.fault, self.size, self.noise, self.sharpness, self.source = fault, size, noise, sharpness, source
        self.colder = bool(source.random() < 0.5)
        self.first: Array = np.zeros(0)
        self.lags: Array = np.zeros(0)
        self.rerouted: Array = np.zeros(0)


def _lengths(tokens: int, source: np.random.Generator) -> Array:
    sequences = max(16, tokens // 400)
    shares = np.exp(0.7 * source.standard_normal(sequences))
    ends = np.round(np.cumsum(shares) / shares.sum() * (tokens - 2 * sequences)).astype(np.int64)
    return np.diff(ends, prepend=0) + 2


def _sharpness(lengths: Array, source: np.random.Generator) -> Array:
    """[T] scale of the logits: log-normal, and correlated along the tokens as hard and easy passages are."""
    steps = source.standard_normal(int(lengths.sum()))
    smooth = np.convolve(steps, 0.7 ** np.arange(12), mode="same") * math.sqrt(1 - 0.49)
    scale: Array = np.exp(math.log(5.0) + 0.6 * smooth)
    return scale


def _log_probs(state: _State, part: slice) -> tuple[Array, Array]:
    """log mu and log pi_old of the sampled tokens of a part, [n] float64 each."""
    source, size, fault = state.source, state.size, state.fault
    count = part.stop - part.start
    logits: Array = state.sharpness[part, None] * source.standard_normal((count, VOCABULARY), np.float32)
    engine: Array = logits
    trainer: Array = logits + _rounding(logits, state.noise, source)
    if fault == "temperature":
        engine = engine / (size if state.colder else 1 / size)
    if fault == "stale_weights":
        drift = size * np.sqrt(state.lags[part])[:, None]
        engine = engine + drift * source.standard_normal(logits.shape, np.float32)
    if fault == "routing":
        trainer = trainer + size * state.rerouted[part, None] * source.standard_normal(logits.shape, np.float32)
    if fault == "first_token":
        trainer = trainer + size * state.first[part, None] * source.standard_normal(logits.shape, np.float32)
    log_mu, log_old = _normalised(engine), _normalised(trainer)
    if fault == "low_probability_tail":
        log_mu = _normalised(log_mu + size * (log_mu < math.log(0.01)))
    if fault == "top_p":
        log_mu = _nucleus(log_mu, size)
    drawn = np.argmax(log_mu + source.gumbel(size=logits.shape), 1)[:, None]
    return np.take_along_axis(log_mu, drawn, 1)[:, 0], np.take_along_axis(log_old, drawn, 1)[:, 0]


def _rounding(logits: Array, noise: float, source: np.random.Generator) -> Array:
    """Noise of another kernel and of bfloat16: one part that does not depend on the logit, one that does."""
    relative = np.abs(logits) * 2.0**-9 * source.standard_normal(logits.shape, np.float32)
    return noise * source.standard_normal(logits.shape, np.float32) + relative


def _normalised(logits: Array) -> Array:
    shifted = logits.astype(np.float64) - logits.max(1, keepdims=True)
    normal: Array = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return normal


def _nucleus(log_mu: Array, p: float) -> Array:
    """The smallest set of tokens that holds p, renormalised; -inf elsewhere."""
    order = np.argsort(-log_mu, 1)
    mass = np.exp(np.take_along_axis(log_mu, order, 1))
    kept_in_order = np.cumsum(mass, 1) - mass < p
    kept = np.zeros_like(kept_in_order)
    np.put_along_axis(kept, order, kept_in_order, 1)
    return log_mu - np.log((np.exp(log_mu) * kept).sum(1, keepdims=True)) + np.where(kept, 0.0, -np.inf)


def _of_batch(
    fault: str, size: float, mu: Array, old: Array, owners: Array, source: np.random.Generator
) -> tuple[Array, Array]:
    """Bugs of what is sent, not of what is computed."""
    if fault == "off_by_one":
        hit = source.permutation(owners[-1] + 1) < max(1, round(size * (owners[-1] + 1)))
        old = np.where(hit[owners], np.roll(old, 1), old)
    if fault == "copied":
        hit = source.permutation(owners[-1] + 1) < round(size * (owners[-1] + 1))
        old = np.where(hit[owners], mu, old)
    if fault == "quantised":
        mu = np.round(mu / size) * size
    return mu, old


def _experts(rerouted: Array, source: np.random.Generator) -> dict[str, Array]:
    """[T, 4 layers, 2] experts of 16 on both sides; rerouted tokens differ in one layer."""
    chosen = source.integers(0, 8, (len(rerouted), 4, 2)) * 2 + np.array([0, 1])
    other = chosen.copy()
    other[rerouted, 1, 0] = (other[rerouted, 1, 0] + 2) % 16
    return {"sampling_experts": chosen.astype(np.uint8), "old_experts": other.astype(np.uint8)}
