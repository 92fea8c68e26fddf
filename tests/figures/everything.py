"""A step with everything that can be sent, in two shards of two engines: every figure that there is has a value."""

from typing import Any, Final

import numpy as np
from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import parse_selection
from offpolicy_monitor.summary import StepSummary

from tests.fixtures.application import SAFETENSORS, Client, frame_bytes

LENGTHS: Final = np.array([1, 30, 100, 7, 64, 257])
SHARDS: Final = 2
#: Rows by their names, with thresholds that mask a part; the second is the correction in use.
ROWS: Final[list[dict[str, Any]]] = [
    {"name": "truncate", "method": "truncate", "level": "token", "lower": 0.98, "upper": 1.02},
    {"name": "mask", "method": "mask", "level": "token", "lower": 0.98, "upper": 1.02, "kl_tau": 0.1, "gap": "total"},
    {"name": "veto", "method": "veto", "lower": 0.9, "upper": 1.1},
    {"name": "opsm", "method": "opsm", "delta": 1e-4},
    {"name": "ppo_clip", "method": "ppo_clip", "lower": 0.02, "upper": 0.02},
    {"name": "trm", "method": "trm", "max": 0.05, "mean": 1e-3},
    {"name": "ipo", "method": "ipo", "threshold": 0.01},
    {"name": "kpop", "method": "kpop", "phi": 1e-4},
    {"name": "cppo", "method": "cppo", "delta": 0.01, "budget": 1e-3, "budget_max": 0.01, "w_min": 0.7},
]
CORRECTION: Final = "mask"


def arrays(seed: int) -> dict[str, np.ndarray]:
    """The arrays of one shard."""
    source, count = np.random.default_rng(seed), int(LENGTHS.sum())
    mu = -source.exponential(1.5, count).astype(np.float32)
    old = mu + source.normal(0, 0.05, count).astype(np.float32)
    experts = source.permuted(np.tile(np.arange(8, dtype=np.uint8), (count, 3, 1)), axis=2)[:, :, :2]
    moved = experts.copy()
    moved[source.random(count) < 0.3, 1] = [6, 7]
    return {
        "lengths": LENGTHS,
        "sampling_logprobs": mu,
        "old_logprobs": old,
        "logprobs": old + source.normal(0, 0.05, count).astype(np.float32),
        "advantages": source.choice([-1.0, 0.0, 1.0], len(LENGTHS)).astype(np.float32),
        "rewards": source.random(len(LENGTHS)).astype(np.float32),
        "entropy": source.random(count).astype(np.float32),
        "turns": np.repeat(np.arange(len(LENGTHS)) % 3, LENGTHS),
        "policy_versions": source.integers(5, 11, count),
        "sampling_experts": experts,
        "old_experts": moved,
        "experts": moved[::-1].copy(),
        "engine_logprobs": mu + source.normal(0, 0.03, count).astype(np.float32),
        "old_logprobs_repeat": old + source.normal(0, 0.01, count).astype(np.float32),
        "old_support_logprobs": -0.1 * source.random(count).astype(np.float32),
        "support_logprobs": -0.1 * source.random(count).astype(np.float32),
    }


def post(client: Client, run: str, step: int) -> None:
    """All shards of a step."""
    for shard in range(SHARDS):
        envelope = {"step": step, "shard": shard, "shards": SHARDS, "policy_version": 9 + step, "minibatches": 1}
        content = frame_bytes({**envelope, "labels": {"engine": f"host.{shard}"}}, arrays(10 * step + shard))
        response = client.post(f"/v1/runs/{run}/batches", content=content, headers=SAFETENSORS)
        assert response.status_code == 200, response.text


def summary(step: int) -> StepSummary:
    """The summary of a step, as the service would measure it."""
    merged, rows, measurer = StepSummary.empty(), parse_selection(ROWS), Measurer("cpu")
    for shard in range(SHARDS):
        columns = arrays(10 * step + shard)
        lengths = columns.pop("lengths")
        of_sequences = {name: columns.pop(name) for name in ("advantages", "rewards")}
        batch = RaggedBatch.from_positions(lengths, columns, of_sequences)
        merged = merged.merge(measurer.measure(batch, rows, Origin(9 + step, shard, {"engine": f"host.{shard}"})))
    return merged
