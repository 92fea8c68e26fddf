"""Version spans: how many runs of one policy version sequences hold, and how old sequences are.

A span is a run of tokens of one known version inside one sequence. Tables: `versions/spans` and `versions/lag`, a
histogram of the whole lag of sequences (the floor of the mean over their tokens of known version).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from offpolicy_monitor.batch import Array, RaggedBatch


def version_tables(batch: RaggedBatch, policy_version: int | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The version tables of a batch; none where versions were not sent, or none is known."""
    versions = batch.columns.get("policy_versions")
    if versions is None or not batch.tokens:
        return
    lengths = np.diff(batch.offsets)
    values = versions.astype(np.int64)
    if "policy_versions" not in batch.a_token:
        values = np.repeat(values, lengths)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    known = values >= 0
    begins = known.copy()
    begins[1:] &= (values[1:] != values[:-1]) | (owners[1:] != owners[:-1])
    counts = np.bincount(owners, known, minlength=len(lengths))
    if not counts.any():
        return
    yield "versions/spans", {"spans": int(begins.sum()), "sequences": int((counts > 0).sum())}
    if policy_version is not None:
        means = _mean_lags(owners, np.where(known, policy_version - values, 0), counts)
        yield "versions/spans#lag", {"lag": float(means.sum())}
        yield "versions/lag", {"": np.unique(np.floor(means).astype(np.int64), return_counts=True)}


def _mean_lags(owners: Array, lags: Array, counts: Array) -> Array:
    """The mean lag of each sequence with a token of known version."""
    there = counts > 0
    means: Array = np.bincount(owners, lags, minlength=len(counts))[there] / counts[there]
    return means
