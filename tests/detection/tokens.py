"""The sampled tokens of one step, from its run and state.

Healthy steps take their noise from the pool's second order; a temperature or a nucleus acts in the logits and draws
anew. Seeded by the generator that is handed in. It knows neither messages nor scenarios.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from tests.detection.pool import EVEN, TOKENS, pool
from tests.detection.state import Run, State, shard_of
from tests.diagnosis.model import Array, drawn, noisy, normalised

#: Above it the second order is not good enough, and noise is added to logits.
QUICK_SCALE: Final = 0.25
SHARPER: Final = 4.0
OFTEN: Final = 0.12
#: The share of the contexts in which a policy comes to say what its engine never draws.
ELSEWHERE: Final = 0.4


@dataclass(eq=False)
class Tokens:
    """The sampled tokens of a step: lengths [S], owners [T], log_mu, entropy [T], d of trainer against engine, and
    whether a token's context is one of ELSEWHERE; internal: d of the engine's prefill against its decode, in `gap`.
    """

    lengths: Array
    owners: Array
    log_mu: Array
    entropy: Array
    gap: Array
    drift: Array
    elsewhere: Array
    internal: Array


def sampled(run: Run, state: State, source: np.random.Generator) -> Tokens:
    """The tokens of a step."""
    lengths = _lengths(run, state, source)
    owners = np.repeat(np.arange(run.sequences), lengths)
    usual, certain = pool(), pool(SHARPER)
    rows = usual.stretches(lengths, source)
    sure = (source.random(run.sequences) < state.certain)[owners]
    scale, drift = _scales(run, state, owners, source), np.full(len(rows), state.drift)
    if not sure.any() and _beyond_second_order(state, scale):
        return _in_logits(state, lengths, owners, rows, scale, drift, source)
    log_mu, entropy = (
        np.where(sure, getattr(certain, name)[rows], getattr(usual, name)[rows]) for name in ("log_mu", "entropy")
    )
    gap, moved = (
        np.where(sure, certain.noise(rows, size, kind, source), usual.noise(rows, size, kind, source))
        for size, kind in ((scale, run.noise), (drift, EVEN))
    )
    decode = np.full(len(rows), state.decode)
    internal = usual.noise(rows, decode, EVEN, source) if state.decode else decode
    return Tokens(lengths, owners, log_mu, entropy, gap + internal, moved, _elsewhere(rows), internal)


def _beyond_second_order(state: State, scale: Array) -> bool:
    reshaped = state.temperature != 1 or state.drawn != 1 or state.nucleus != 1 or state.flat > 0
    return reshaped or max(float(scale.max()), state.drift, state.decode) > QUICK_SCALE


def _in_logits(
    state: State, lengths: Array, owners: Array, rows: Array, scale: Array, drift: Array, source: np.random.Generator
) -> Tokens:
    """The same in the logits themselves: the engine's are reshaped, tokens are drawn from them."""
    logits = pool().logits[rows]
    engine = logits / np.float32(state.temperature)
    if state.nucleus < 1:
        engine = within(engine, state.nucleus)
    if state.flat:
        below = normalised(engine)
        knee = np.float32(-4.0)
        engine = np.where(below < knee, knee + (below - knee) * np.float32(1 - state.flat), below)
    trainer = noisy(logits, scale, 0.0, source)
    decoded = noisy(engine, np.full(len(rows), state.decode), 0.0, source) if state.decode else engine
    moved = noisy(trainer, drift, 0.0, source)
    log_mu, log_old, log_new = (normalised(values) for values in (decoded, trainer, moved))
    log_prefill = normalised(engine) if state.decode else log_mu
    chosen = drawn(log_mu if state.drawn == 1 else normalised(decoded / np.float32(state.drawn)), source)
    mu, old, new, prefill = (
        np.take_along_axis(values, chosen, 1)[:, 0].astype(np.float64)
        for values in (log_mu, log_old, log_new, log_prefill)
    )
    return Tokens(lengths, owners, mu, pool().entropy[rows], old - mu, new - old, _elsewhere(rows), prefill - mu)


def _elsewhere(rows: Array) -> Array:
    """[T] whether a token of the pool is one whose context has such a token, the same ones at every step."""
    return np.asarray(rows % 10 < round(10 * ELSEWHERE))


def within(logits: Array, share: float) -> Array:
    """Logits of the fewest tokens that hold `share`; the others are all but impossible."""
    log_mu = normalised(logits)
    order = np.argsort(-log_mu, 1)
    mass = np.exp(np.take_along_axis(log_mu, order, 1))
    kept = np.zeros(log_mu.shape, bool)
    np.put_along_axis(kept, order, np.cumsum(mass, 1) - mass < share, 1)
    return np.where(kept, logits, np.float32(-1e4))


def _lengths(run: Run, state: State, source: np.random.Generator) -> Array:
    shares = np.exp(run.broad * source.standard_normal(run.sequences) - run.broad**2 / 2)
    most = state.cap or TOKENS // 4
    return np.asarray(np.clip(np.round(shares * state.length), 2, most).astype(np.int64))


def _scales(run: Run, state: State, owners: Array, source: np.random.Generator) -> Array:
    """[T] noise of a logit: of the run, of the token, of the sequence, and of an engine that is stale."""
    scale = np.full(len(owners), state.scale)
    uneven = run.uneven if state.uneven is None else state.uneven
    if uneven != 1:
        scale *= np.where(source.random(len(owners)) < OFTEN, uneven, 1.0)
    if run.diverse:
        scale *= np.exp(run.diverse * source.standard_normal(run.sequences))[owners]
    if state.stale:
        scale = np.where(shard_of(run)[owners] == run.shards - 1, np.hypot(scale, state.stale), scale)
    return np.asarray(scale)


def scale_of(k3: float, run: Run) -> float:
    """The noise of a logit at which a run's mismatch k3 is about this."""
    mean = float(pool().variance[run.noise].mean()) / 2
    uneven = 1 + OFTEN * (run.uneven**2 - 1)
    return math.sqrt(k3 / (mean * uneven * math.exp(2 * run.diverse**2)))
