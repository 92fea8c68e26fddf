"""Counts of a whole batch, whatever the gap: what was sent, what was excluded, what is suspect, how old it is."""

from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.batch import LOGPROB_COLUMNS, RaggedBatch
from offpolicy_monitor.core.select import places_above, places_below
from offpolicy_monitor.measure.blocks import DeviceBatch

#: Of all numbers only zero has a smaller magnitude than this subnormal float32.
SMALLEST_MAGNITUDE: Final = 2.0**-149

#: log mu of 0 says that the token was certain. Where the trainer's log-prob is below this it was not: mu was filled in.
CERTAIN: Final = -0.1


def batch_sums(batch: RaggedBatch, loaded: DeviceBatch) -> dict[str, float]:
    """Counts of the whole batch (summary.step.BATCH_SUMS): what was sent, what was excluded, what is suspect."""
    lengths = np.diff(batch.offsets)
    sums: dict[str, float] = {
        "tokens": batch.tokens,
        "sequences": batch.sequences,
        "empty_sequences": int((lengths == 0).sum()),
        **_suspects(loaded),
    }
    for name, column in (("entropy", "entropy"), ("reward", "rewards")):
        if column in batch.columns:
            sums |= _finite_sum(name, column in batch.a_token, batch.columns[column])
    return sums


def _finite_sum(name: str, a_token: bool, values: Any) -> dict[str, float]:
    finite = values[np.isfinite(values)]
    count = f"{name}_tokens" if a_token else f"{name}_sequences"
    return {count: len(finite), name: float(finite.sum(dtype=np.float64))} if len(finite) else {}


def _suspects(loaded: DeviceBatch) -> dict[str, int]:
    """Tokens with a non-finite log-prob (excluded); with a positive one, or with log mu exactly 0 (kept, but odd).

    Of the latter also those that the trainer did not find certain: a zero that was filled in.

    Where every column's largest value is negative, which is the rule, nothing has to be counted.
    """
    columns = [loaded.columns[name] for name in LOGPROB_COLUMNS if name in loaded.columns]
    counts = {"nonfinite_tokens": 0, "positive_tokens": 0, "exact_zero_tokens": 0, "zero_filled_tokens": 0}
    if not loaded.finite and all(not len(column) or float(column.amax()) < 0 for column in columns):
        return counts
    if loaded.finite:
        finite = torch.stack(list(loaded.finite.values())).all(0)
        counts["nonfinite_tokens"] = len(finite) - int(finite.sum())
    if "sampling_logprobs" in loaded.columns:
        zeros = places_below(loaded.columns["sampling_logprobs"].abs(), SMALLEST_MAGNITUDE)
        counts |= {"exact_zero_tokens": len(zeros), "zero_filled_tokens": _filled(loaded, zeros)}
    return {**counts, "positive_tokens": len(torch.unique(torch.cat([_positive(column) for column in columns])))}


def _filled(loaded: DeviceBatch, zeros: Tensor) -> int:
    """Of the tokens with log mu exactly 0, those that the trainer did not find certain; none where it sent nothing."""
    for name in ("old_logprobs", "logprobs"):
        if name in loaded.columns:
            return int((loaded.columns[name][zeros] < CERTAIN).sum())
    return 0


def _positive(column: Tensor) -> Tensor:
    """Places of finite log-probs above 0."""
    places = places_above(column, 0.0)
    return places[torch.isfinite(column[places])]


def lag_sums(batch: RaggedBatch, policy_version: int | None) -> dict[str, float]:
    """Version lag over tokens: policy_version - policy_versions ([S] or [T]); -1 is not generated."""
    versions = batch.columns.get("policy_versions")
    if versions is None or policy_version is None:
        return {}
    weights = np.ones(len(versions)) if "policy_versions" in batch.a_token else np.diff(batch.offsets)
    known = (versions >= 0) & (weights > 0)
    if not known.any():
        return {}
    lags = policy_version - versions[known].astype(np.float64)
    return {
        "lag_tokens": int(weights[known].sum()),
        "lag": float((lags * weights[known]).sum()),
        "lag_max": float(lags.max()),
    }
