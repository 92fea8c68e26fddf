"""Batches of a trainer: three log-probs of S sequences, and what else a step has."""

from typing import Any

import numpy as np


def batch(sequences: int = 4, length: int = 8, seed: int = 0) -> dict[str, Any]:
    """Padded [S, L] arrays, the mask one at all positions."""
    rng = np.random.default_rng(seed)
    mu = -rng.exponential(0.5, (sequences, length)).astype(np.float32)
    old = mu + rng.normal(0, 0.02, mu.shape).astype(np.float32)
    return {
        "sampling_logprobs": mu,
        "old_logprobs": old,
        "logprobs": old + rng.normal(0, 0.01, mu.shape).astype(np.float32),
        "mask": np.ones(mu.shape, np.bool_),
        "advantages": rng.normal(size=sequences).astype(np.float32),
    }


def nbytes(arrays: dict[str, Any]) -> int:
    return sum(array.nbytes for array in arrays.values())
