"""One gradient step of a run as messages: what is planted in what is sent stands here. It knows no scenario."""

from collections.abc import Mapping
from typing import Final

import numpy as np
from offpolicy_monitor.batch import Origin, RaggedBatch

from tests.detection.state import Run, State, shard_of
from tests.detection.tokens import ELSEWHERE, sampled
from tests.diagnosis.model import Array

Part = tuple[RaggedBatch, Origin]
LAYERS: Final = 4


def make_step(run: Run, state: State, version: int, source: np.random.Generator) -> list[Part]:
    """The messages of the last gradient step of a training step, one per shard."""
    tokens = sampled(run, state, source)
    mu = _coarse(tokens.log_mu)
    old = mu if state.copied else _coarse(mu + tokens.gap if state.scale else mu)
    new = _coarse(old + tokens.drift)
    if state.shifted:
        hit = source.permutation(run.sequences) < max(1, round(state.shifted * run.sequences))
        old = np.where(hit[tokens.owners], np.roll(old, -1), old)
        new = np.where(hit[tokens.owners], np.roll(new, -1), new)
    if state.broken:
        mu = np.where(source.random(len(mu)) < state.broken, np.nan, mu)
    experts = _experts(len(mu), state.agreement, source) if run.routed else {}
    lags = np.minimum(source.integers(0, state.lag + 1, run.sequences), version)
    if state.lag > 0:
        lags[0] = min(state.lag, version)
    rewards = (source.random(run.sequences) < state.solved).astype(np.float32)
    advantages = ((rewards - rewards.mean()) / (rewards.std() + 1e-4)).astype(np.float32)
    if state.learned:
        better = state.learned * np.abs(tokens.gap) * np.sign(advantages)[tokens.owners]
        old, new = _coarse(old + better), _coarse(new + better)
    if state.moved:
        lost = np.log1p(-np.where(tokens.elsewhere, state.moved / ELSEWHERE, 0.0))
        old, new = _coarse(old + lost), _coarse(new + lost)
    per_token = {"sampling_logprobs": mu, "old_logprobs": old, "logprobs": new, "entropy": tokens.entropy}
    if run.rescored:
        per_token["engine_logprobs"] = _coarse(tokens.log_mu + tokens.internal)
    columns = {name: values.astype(np.float32) for name, values in per_token.items()} | experts
    a_sequence = {"advantages": advantages, "rewards": rewards, "policy_versions": version - lags}
    if state.oldest is not None:
        by_age = np.argsort(tokens.lengths)
        lags[by_age] = np.sort(lags)
        a_sequence["policy_versions"] = version - lags
        return _shards(run, tokens.lengths, columns, a_sequence, version, lags <= state.oldest)
    return _shards(run, tokens.lengths, columns, a_sequence, version)


def _coarse(log_probs: Array) -> Array:
    """Log-probs as float32 at logits of some 20 has them: multiples of 2^-19, and none above 0."""
    return np.asarray(np.minimum(np.round(log_probs * 2.0**19) / 2.0**19, 0.0))


def _experts(tokens: int, agreement: float, source: np.random.Generator) -> dict[str, Array]:
    """[T, LAYERS, 2] experts of 16 on both sides."""
    chosen = source.integers(0, 8, (tokens, LAYERS, 2), np.uint8) * 2 + np.array([0, 1], np.uint8)
    other = chosen.copy()
    changed = source.random((tokens, LAYERS)) < 2 * (1 - agreement)
    other[..., 0] = np.where(changed, (other[..., 0] + 2) % 16, other[..., 0])
    return {"sampling_experts": chosen, "old_experts": other}


def _shards(
    run: Run,
    lengths: Array,
    columns: Mapping[str, Array],
    a_sequence: Mapping[str, Array],
    version: int,
    kept: Array | bool = True,
) -> list[Part]:
    owners, parts = shard_of(run), []
    for shard in range(run.shards):
        mine = (owners == shard) & kept
        taken = np.repeat(mine, lengths)
        batch = RaggedBatch.from_positions(
            lengths[mine],
            {name: column[taken] for name, column in columns.items()},
            {name: column[mine] for name, column in a_sequence.items()},
        )
        parts.append((batch, Origin(version, shard, {"engine": f"e{shard}"} if run.labelled else {})))
    return parts
