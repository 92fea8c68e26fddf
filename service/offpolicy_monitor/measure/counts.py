"""Counts of a whole batch, whatever the gap: what was sent, what was excluded, what is suspect, how old it is.

All of it is about what came, so it is counted where it came: on the host. Tables: `batch`, in its parts, and `longest`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from offpolicy_monitor.batch import Array, RaggedBatch
from offpolicy_monitor.summary.tables import calibration, decimals, longest
from offpolicy_monitor.summary.tables.calibration import calibration_sums
from offpolicy_monitor.summary.tables.decimals import decimal_sums
from offpolicy_monitor.summary.tables.longest import longest_sums
from offpolicy_monitor.vocabulary import CERTAIN_LOGPROB


def batch_tables(batch: RaggedBatch, policy_version: int | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables of the batch: what was sent and what is odd about it, calibration, decimals, its longest
    sequences, lag, entropy and reward."""
    yield (
        "batch",
        {
            "tokens": batch.tokens,
            "sequences": batch.sequences,
            "empty_sequences": int((np.diff(batch.offsets) == 0).sum()),
            **_suspects(batch),
        },
    )
    if found := calibration_sums(batch.columns, batch.offsets):
        yield f"batch#{calibration.PART}", found
    if batch.is_fine and (found := decimal_sums(batch.columns)):
        yield f"batch#{decimals.PART}", found
    if (long := longest_sums(batch.offsets)) is not None:
        yield longest.TABLE.path, {"sequences": long[0]}
        yield longest.BY_LENGTH.path, {"": long[1]}
    lag = _lag(batch, policy_version)
    if lag:
        yield "batch#lag", lag
    for part, unit, column in (("entropy", "tokens", "entropy"), ("reward", "sequences", "rewards")):
        values = batch.columns.get(column)
        if values is not None and np.isfinite(values).any():
            finite = values[np.isfinite(values)]
            yield f"batch#{part}", {f"{part}_{unit}": len(finite), part: float(finite.sum(dtype=np.float64))}


def _suspects(batch: RaggedBatch) -> dict[str, int]:
    """Tokens with a non-finite log-prob (excluded); with a positive one, or with log mu exactly 0 (kept, but odd).

    Of the latter also those that the trainer did not find certain: a zero that was filled in. Where all of a column is
    finite and negative, which is the rule, there is nothing to be counted in it.
    """
    counts = {"nonfinite_tokens": 0, "positive_tokens": 0, "exact_zero_tokens": 0, "zero_filled_tokens": 0}
    odd = {name: batch.columns[name] for name, (least, most) in batch.ends.items() if not -np.inf < least <= most < 0}
    if not np.isfinite(list(batch.ends.values())).all():
        finite = [np.isfinite(column) for column in odd.values()]
        counts["nonfinite_tokens"] = batch.tokens - int(np.logical_and.reduce(finite).sum())
    positive = [(column > 0) & (column < np.inf) for name, column in odd.items() if not batch.ends[name][1] <= 0]
    if positive:
        counts["positive_tokens"] = int(np.logical_or.reduce(positive).sum())
    if "sampling_logprobs" in odd:
        zeros = np.flatnonzero(odd["sampling_logprobs"] == 0)
        counts["exact_zero_tokens"] = len(zeros)
        counts["zero_filled_tokens"] = _filled(batch, zeros)
    return counts


def _filled(batch: RaggedBatch, zeros: Array) -> int:
    """Of the tokens with log mu exactly 0, those that the trainer did not find certain; none where it sent nothing."""
    for name in ("old_logprobs", "logprobs"):
        if name in batch.columns:
            return int((batch.columns[name][zeros] < CERTAIN_LOGPROB).sum())
    return 0


def _lag(batch: RaggedBatch, policy_version: int | None) -> dict[str, float]:
    """Version lag over tokens: policy_version - policy_versions ([S] or [T]); -1 is not generated."""
    versions = batch.columns.get("policy_versions")
    if versions is None or policy_version is None:
        return {}
    weights = np.ones(len(versions)) if "policy_versions" in batch.per_token else np.diff(batch.offsets)
    known = (versions >= 0) & (weights > 0)
    if not known.any():
        return {}
    lags = policy_version - versions[known].astype(np.float64)
    return {
        "lag_tokens": int(weights[known].sum()),
        "lag": float((lags * weights[known]).sum()),
        "lag_max": float(lags.max()),
    }
