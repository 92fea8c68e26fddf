"""A batch with everything that can be sent, so that a run shows every family; healthy, or with mismatch and lag."""

from typing import Any

import numpy as np

TOKENS, SEQUENCES = 256, 8


def loaded(step: int, noise: float = 0.001, drift: float = 0.01) -> dict[str, Any]:
    """`noise` is the spread of the mismatch in nats, `drift` that of the staleness."""
    source = np.random.default_rng(step)
    sampling = -source.exponential(1.0, TOKENS) - 0.01
    old = sampling + source.normal(0, noise, TOKENS)
    current = old + source.normal(0, drift, TOKENS)
    columns = {"sampling_logprobs": sampling, "old_logprobs": old, "logprobs": current}
    experts = np.zeros((TOKENS, 2, 2), int)
    experts[:, :, 1] = 1
    return {
        "step": step,
        "lengths": [TOKENS // SEQUENCES] * SEQUENCES,
        **{name: np.minimum(column, -1e-4).tolist() for name, column in columns.items()},
        "engine_logprobs": (sampling + source.normal(0, noise, TOKENS)).tolist(),
        "old_logprobs_repeat": (old + source.normal(0, noise, TOKENS)).tolist(),
        "old_support_logprobs": [-0.01] * TOKENS,
        "support_logprobs": [-0.01] * TOKENS,
        "entropy": [1.0] * TOKENS,
        "rewards": [1.0, 0.0] * (SEQUENCES // 2),
        "advantages": [1.0, -1.0, 0.5, -0.5] * (SEQUENCES // 4),
        "policy_version": step + 1,
        "policy_versions": [step] * SEQUENCES,
        "sampling_experts": experts.tolist(),
        "old_experts": experts.tolist(),
    }
