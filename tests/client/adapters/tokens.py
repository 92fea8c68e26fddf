"""Values that name their token, so that an array shifted by one against another is seen at once.

Token t of a batch has a number of its own; mu is -t, pi_old -t - 0.25, pi -t - 0.5, the advantage 10 t, the version
100 + t. Prompt tokens have other values, which no mask may let through.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

FROM = {
    "sampling_logprobs": lambda t: -t,
    "old_logprobs": lambda t: -t - 0.25,
    "logprobs": lambda t: -t - 0.5,
    "advantages": lambda t: 10.0 * t,
    "policy_versions": lambda t: 100 + t,
}


def of(name: str, tokens: Sequence[int]) -> list[float]:
    """The values of an array of the contract for these tokens."""
    return [float(FROM[name](token)) for token in tokens]


def told(call: Mapping[str, Any], name: str) -> list[list[float]]:
    """What was posted under the mask, one list per sequence that has anything there."""
    pairs = zip(call[name], call["mask"], strict=True)
    found = [torch.as_tensor(row)[torch.as_tensor(mask) != 0].tolist() for row, mask in pairs]
    return [row for row in found if row]
