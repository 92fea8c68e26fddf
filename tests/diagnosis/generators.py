"""Batches with a known fault, planted in the distributions of an otherwise healthy batch (tests.diagnosis.model).

The engine (mu) samples; the trainer (pi_old) recomputes. Where a fault has several physical forms, the seed chooses
one. Seeded: the same arguments give the same batch.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from offpolicy_monitor.batch import Origin, RaggedBatch

from tests.diagnosis.model import (
    CHUNK,
    NOISE,
    POLICY_VERSION,
    REPLICAS,
    USUAL,
    Array,
    Text,
    drawn,
    logits_of,
    noisy,
    normalised,
    text,
)

SIZES: Final = {"small": 2_000, "middle": 20_000, "large": 200_000}
STRENGTHS: Final = ("weak", "medium", "strong")
CLEAN: Final = "noise"
MISSED_SYNCS: Final = 8
LAYERS: Final = 16
#: Gradient steps of a fault that shows in how the mismatch goes from step to step.
SERIES: Final = 8
#: Tokens after which the trace of another prompt is half as large; how much of it stays.
HALF_LIFE: Final = 24
STAYS: Final = 0.1
#: Tokens in which a coarse cache comes to have its whole effect.
CONTEXT: Final = 500


@dataclass(frozen=True)
class Case:
    """One batch being made: what is planted how strongly, the healthy text, the form that the seed chose, and which
    gradient step of the fault it is, from 0."""

    size: float
    text: Text
    form: bool
    source: np.random.Generator
    step: int = 0

    def positions(self, part: slice) -> Array:
        """[n] how many tokens of its sequence come before each of a part."""
        index = np.arange(part.start, min(part.stop, len(self.text.owners)))
        return np.asarray(index - self.text.first[self.text.owners[part]])


Logits = tuple[Array, Array]
Plant = Callable[[Case, slice, Array, Array], Logits]


def temperature(case: Case, part: slice, engine: Array, trainer: Array) -> Logits:
    """The sampler divides its logits by T (or by 1 / T), the trainer does not."""
    return engine / np.float32(case.size if case.form else 1 / case.size), trainer


def top_p(case: Case, part: slice, engine: Array, trainer: Array) -> Logits:
    """The engine's distribution is cut to the smallest set of tokens that holds p, and renormalised."""
    log_mu = normalised(engine)
    order = np.argsort(-log_mu, 1)
    mass = np.exp(np.take_along_axis(log_mu, order, 1))
    kept = np.zeros(log_mu.shape, bool)
    np.put_along_axis(kept, order, np.cumsum(mass, 1) - mass < case.size, 1)
    return np.where(kept, engine, np.float32(-1e4)), trainer


def stale_weights(case: Case, part: slice, engine: Array, trainer: Array) -> Logits:
    """Old weights: of lagging sequences, recomputed by the newest weights, or of one replica that missed syncs."""
    owners = case.text.owners[part]
    if case.form:
        missed = case.text.lags
    else:
        missed = MISSED_SYNCS * (np.arange(len(case.text.lengths)) * REPLICAS // len(case.text.lengths) == 2)
    drift = (case.size * np.sqrt(missed)[owners]).astype(np.float32)
    return engine + drift[:, None] * case.source.standard_normal(engine.shape, np.float32), trainer


def first_token(case: Case, part: slice, engine: Array, trainer: Array) -> Logits:
    """Different prompts: logits of the first token differ, and half as much with each token after it."""
    drift = (case.size * 0.5 ** case.positions(part)).astype(np.float32)
    return engine, trainer + drift[:, None] * case.source.standard_normal(trainer.shape, np.float32)


def prompt(case: Case, part: slice, engine: Array, trainer: Array) -> Logits:
    """Another context: logits differ most where the answer begins, fade along it, and never agree; in all sequences, or
    in half of them."""
    left = STAYS + (1 - STAYS) * 0.5 ** (case.positions(part) / HALF_LIFE)
    hit = np.where(case.form | (case.text.owners[part] % 2 == 0), left, 0.0)
    return engine, trainer + _random(case.size * hit, trainer, case)


def partial_sync(case: Case, part: slice, engine: Array, trainer: Array) -> Logits:
    """Weights that are never synced: logits drift as a random walk does, step by step, or sharpen as well."""
    age = case.step + 1
    sharper = 1.0 if case.form else 1 + case.size * age / (4 * SERIES)
    drift = np.full(len(trainer), case.size * math.sqrt(age))
    return engine, trainer * np.float32(sharper) + _random(drift, trainer, case)


def kv_precision(case: Case, part: slice, engine: Array, trainer: Array) -> Logits:
    """A coarse cache: errors of the engine's logits grow with the tokens that are read from it, as they add up."""
    read = np.minimum(case.positions(part) / CONTEXT, 1.0)
    return engine, trainer + _random(case.size * (read if case.form else np.sqrt(read)), trainer, case)


def engine_internal(case: Case, part: slice, engine: Array, trainer: Array) -> Logits:
    """Decoding has other kernels than prefill: all logits that are sampled from differ, or those of half of the
    sequences, which were decoded in batches of another shape."""
    hit = case.form | (case.text.owners[part] % 2 == 0)
    return engine + _random(case.size * hit, engine, case), trainer


def unknown(case: Case, part: slice, engine: Array, trainer: Array) -> Logits:
    """Something that leaves no mark: all logits differ, more on some tokens, from the first step on."""
    louder = np.where(case.source.random(len(trainer)) < 0.2, 2.0, 1.0) if case.form else np.ones(len(trainer))
    return engine, trainer + _random(case.size * louder, trainer, case)


def _random(deviation: Array, logits: Array, case: Case) -> Array:
    """[n, V] Gaussian changes of logits, of a deviation [n] per token."""
    scale = np.asarray(deviation, np.float32)[:, None]
    return np.asarray(scale * case.source.standard_normal(logits.shape, np.float32))


def low_probability_tail(case: Case, part: slice, engine: Array, trainer: Array) -> Logits:
    """The engine cannot say how improbable: it mixes in a uniform floor, or flattens what is far below the largest."""
    log_mu = normalised(engine)
    if case.form:
        return np.logaddexp(log_mu, np.float32(math.log(case.size / 1000))), trainer
    knee = np.float32(-4.0)
    return np.where(log_mu < knee, knee + (log_mu - knee) * np.float32(1 - case.size), log_mu), trainer


def routing(case: Case, part: slice, engine: Array, trainer: Array) -> Logits:
    """Logits change by `size` for each layer in which a token's experts differ, as independent changes add up."""
    changed = (case.size * np.sqrt(_rerouted(case)[part].sum(1, keepdims=True))).astype(np.float32)
    return engine, trainer + changed * case.source.standard_normal(trainer.shape, np.float32)


def cut_or_cooled(case: Case, log_mu: Array) -> Array:
    """[n, V] what is sampled from though log_mu is reported: another temperature, or a nucleus."""
    if case.form:
        return normalised(log_mu / np.float32(case.size))
    order = np.argsort(-log_mu, 1)
    mass = np.exp(np.take_along_axis(log_mu, order, 1))
    kept = np.zeros(log_mu.shape, bool)
    np.put_along_axis(kept, order, np.cumsum(mass, 1) - mass < case.size, 1)
    return normalised(np.where(kept, log_mu, np.float32(-1e4)))


def as_reported(case: Case, log_mu: Array) -> Array:
    """What is reported is what is sampled from."""
    return log_mu


def untouched(case: Case, part: slice, engine: Array, trainer: Array) -> Logits:
    """Nothing is wrong with the distributions."""
    return engine, trainer


def off_by_one(case: Case, mu: Array, old: Array) -> Logits:
    """The trainer's log-probs of some sequences (as of one engine, or one code path) belong to a neighbour."""
    return mu, np.where(_some(case), np.roll(old, 1 if case.form else -1), old)


def copied(case: Case, mu: Array, old: Array) -> Logits:
    """The engine's log-probs are sent in place of recomputed ones, for some sequences."""
    return mu, np.where(_some(case), mu, old)


def quantised(case: Case, mu: Array, old: Array) -> Logits:
    """The engine's log-probs lie on a fixed grid (log-softmax of large bfloat16 logits) or have few mantissa bits."""
    if case.form:
        return np.round(mu / case.size) * case.size, old
    exponent = np.exp2(np.floor(np.log2(np.maximum(-mu, 1e-30))))
    return np.round(mu / (exponent * case.size)) * exponent * case.size, old


def decimal(case: Case, mu: Array, old: Array) -> Logits:
    """The engine's log-probs, or both sides', went through a text of so many decimals."""
    rounded = np.round(mu, int(case.size))
    return rounded, old if case.form else np.round(old, int(case.size))


def garbled(case: Case, mu: Array, old: Array) -> Logits:
    """Of some rows the tokens are others than those that the engine reports on, or of one another."""
    hit = _some(case)
    foreign = -np.abs(case.source.normal(4.0, 3.0, len(old)))
    exchanged = np.where(case.source.random(len(old)) < 0.5, foreign, case.source.permutation(old))
    return mu, np.where(hit, foreign if case.form else exchanged, old)


def sampled_padding(case: Case, mu: Array, old: Array) -> Logits:
    """One answer contains a pad token, improbable, which the trainer does not see: what follows is of another context.

    `size` is how much of the answer follows.
    """
    chosen = int(np.argmax(case.text.lengths))
    end = int(case.text.first[chosen] + case.text.lengths[chosen])
    pad = end - max(2, round(case.size * int(case.text.lengths[chosen])))
    mu, old = mu.copy(), old.copy()
    mu[pad] = case.source.uniform(-14.0, -7.0)
    old[pad] = 0.0 if case.form else mu[pad] - 2.0
    old[pad + 1 : end] = mu[pad + 1 : end] - np.abs(case.source.normal(3.0, 3.0, end - pad - 1))
    return mu, old


def sent(case: Case, mu: Array, old: Array) -> Logits:
    """What is computed is what is sent."""
    return mu, old


@dataclass(frozen=True)
class Fault:
    """Strengths weak to strong in the unit of `what`; where it acts, in logits, in the draw or in what is sent; how
    many gradient steps it takes to show; whether `engine_logprobs` are sent, of the engine before it was planted."""

    what: str
    sizes: tuple[float, float, float]
    plant: Plant = untouched
    sample: Callable[[Case, Array], Array] = as_reported
    send: Callable[[Case, Array, Array], Logits] = sent
    steps: int = 1
    rescored: bool = False


FAULTS: Final[Mapping[str, Fault]] = {
    "top_p": Fault("p of the nucleus", (0.98, 0.95, 0.9), top_p),
    "temperature": Fault("temperature of the sampler, or its inverse", (0.95, 0.9, 0.8), temperature),
    "off_by_one": Fault("share of the sequences", (0.1, 0.5, 1.0), send=off_by_one),
    "stale_weights": Fault("drift of a logit in one version", (0.03, 0.1, 0.3), stale_weights),
    "copied": Fault("share of the sequences", (0.6, 0.9, 1.0), send=copied),
    "quantised": Fault("step of the grid, or of the mantissa", (2.0**-7, 2.0**-5, 2.0**-3), send=quantised),
    "first_token": Fault("change of the first token's logits", (1.0, 2.0, 4.0), first_token),
    "low_probability_tail": Fault(
        "flattening of logits below; floor of each token in per mille", (0.1, 0.2, 0.4), low_probability_tail
    ),
    "routing": Fault("change of the logits a layer whose experts differ", (0.1, 0.2, 0.4), routing),
    "prompt": Fault("change of the logits where answers begin", (0.5, 1.0, 2.0), prompt),
    "partial_sync": Fault("drift of a logit in one step", (0.03, 0.1, 0.3), partial_sync, steps=SERIES),
    "garbled": Fault("share of the sequences, at least one", (0.01, 0.015, 0.02), send=garbled),
    "sampled_padding": Fault("share of one answer that follows", (0.1, 0.3, 0.5), send=sampled_padding),
    "kv_precision": Fault("change of the logits at 500 tokens", (0.1, 0.2, 0.4), kv_precision),
    "decimal": Fault("decimal places", (4, 3, 2), send=decimal),
    "sampling": Fault("temperature or nucleus of the draw alone", (0.9, 0.8, 0.7), sample=cut_or_cooled),
    "unknown": Fault("change of all logits", (0.4, 0.7, 1.0), unknown),
    "engine_internal": Fault("change of the logits in decoding", (0.2, 0.4, 0.8), engine_internal, rescored=True),
}


NOTHING: Final = Fault("", (0.0, 0.0, 0.0))


@dataclass(frozen=True)
class Generated:
    """The messages of one gradient step."""

    parts: tuple[tuple[RaggedBatch, Origin], ...]


def generate_steps(fault: str, strength: str, tokens: int, seed: int) -> list[Generated]:
    """As many gradient steps as the fault needs to show, of about `tokens` tokens each."""
    steps = FAULTS[fault].steps if fault in FAULTS else 1
    return [generate(fault, strength, tokens, seed, step) for step in range(steps)]


def generate(fault: str, strength: str, tokens: int, seed: int, step: int = 0) -> Generated:
    """About `tokens` tokens with `fault` (CLEAN for none), in as many messages as there are engines."""
    key = [seed, tokens, [CLEAN, *FAULTS].index(fault), STRENGTHS.index(strength)]
    run, source = np.random.default_rng(key), np.random.default_rng([*key, step])
    row = FAULTS.get(fault, NOTHING)
    kinds = tuple(NOISE) if fault == CLEAN else USUAL
    healthy = text(tokens, str(run.choice(kinds)), source, run)
    case = _case(fault, row.sizes[STRENGTHS.index(strength)], healthy, bool(run.random() < 0.5), source, step)
    parts = [_log_probs(case, row, slice(start, min(start + CHUNK, tokens))) for start in range(0, tokens, CHUNK)]
    mu, old, entropy, prefill = (np.concatenate([part[side] for part in parts]) for side in range(4))
    mu, old = row.send(case, mu, old)
    sent_columns = {"sampling_logprobs": mu, "old_logprobs": old, "entropy": entropy}
    if row.rescored:
        sent_columns["engine_logprobs"] = prefill
    columns = {name: column.astype(np.float32) for name, column in sent_columns.items()}
    return Generated(tuple(_messages(case.text, columns | _experts(fault, case))))


def _case(fault: str, size: float, healthy: Text, form: bool, source: np.random.Generator, step: int) -> Case:
    """The case, with the lag or the replicas that a form of staleness needs."""
    sequences = len(healthy.lengths)
    if fault == "stale_weights":
        lags = source.integers(0, 5, sequences) if form else healthy.lags
        replicas = healthy.replicas if form else np.arange(sequences) * REPLICAS // sequences
        healthy = replace(healthy, lags=lags, replicas=replicas)
    return Case(size, healthy, form, source, step)


def _log_probs(case: Case, row: Fault, part: slice) -> tuple[Array, Array, Array, Array]:
    """Of the sampled tokens of a part log mu and log pi_old, the trainer's entropies, and what a healthy engine would
    have reported, [n] float32 each."""
    logits = logits_of(case.text.sharpness[part], case.source)
    trainer = noisy(logits, case.text.scale[part], case.text.relative, case.source)
    engine, trainer = row.plant(case, part, logits, trainer)
    log_mu, log_old = normalised(engine), normalised(trainer)
    chosen = drawn(row.sample(case, log_mu), case.source)
    mu, old, prefill = (np.take_along_axis(each, chosen, 1)[:, 0] for each in (log_mu, log_old, normalised(logits)))
    return mu, old, -(np.exp(log_old) * log_old).sum(1), prefill


def _some(case: Case) -> Array:
    """[T] bool: tokens of the share `size` of the sequences, at least of one."""
    sequences = len(case.text.lengths)
    hit = case.source.permutation(sequences) < max(1, round(case.size * sequences))
    return np.asarray(hit[case.text.owners])


def _rerouted(case: Case) -> Array:
    """[T, LAYERS] bool, the same whenever asked: few tokens with one layer, or most with two or three (as in R3)."""
    source, tokens = np.random.default_rng(len(case.text.owners)), len(case.text.owners)
    if case.form:
        return np.asarray((np.arange(LAYERS) == 1) & (source.random((tokens, 1)) < 0.15))
    return np.asarray(source.random((tokens, LAYERS)) < 0.15)


def _experts(fault: str, case: Case) -> dict[str, Array]:
    """[T, LAYERS, 2] experts of 16 on both sides where routing is at fault, and of some clean batches."""
    if fault != "routing" and not (fault == CLEAN and case.form):
        return {}
    chosen = case.source.integers(0, 8, (len(case.text.owners), LAYERS, 2), np.uint8) * 2 + np.array([0, 1], np.uint8)
    other = chosen.copy()
    other[..., 0] = np.where(_rerouted(case), (other[..., 0] + 2) % 16, other[..., 0])
    return {"sampling_experts": chosen, "old_experts": other}


def _messages(healthy: Text, columns: Mapping[str, Array]) -> list[tuple[RaggedBatch, Origin]]:
    """One message, or one per replica with its label."""
    replicas = np.zeros(len(healthy.lengths), np.int64) if healthy.replicas is None else healthy.replicas
    parts = []
    for replica in range(int(replicas[-1]) + 1):
        of_replica = replicas == replica
        taken = of_replica[healthy.owners]
        a_sequence = {"policy_versions": POLICY_VERSION - healthy.lags[of_replica]}
        if healthy.advantages is not None:
            a_sequence["advantages"] = healthy.advantages[of_replica]
        mine = {name: column[taken] for name, column in columns.items()}
        batch = RaggedBatch.from_positions(healthy.lengths[of_replica], mine, a_sequence)
        labels = {} if healthy.replicas is None else {"engine": f"e{replica}"}
        parts.append((batch, Origin(POLICY_VERSION, replica, labels)))
    return parts
