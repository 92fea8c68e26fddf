"""Maker of version spans: how many runs of one policy version sequences hold, and how old sequences are.

A span is a run of tokens of one known version inside one sequence. Tables: `versions/spans` and `versions/lag`, a
histogram of the whole lag of sequences (the floor of the mean over their tokens of known version).
"""

from typing import TYPE_CHECKING

import numpy as np

from offpolicy_monitor.summary.named import Tables

if TYPE_CHECKING:
    from offpolicy_monitor.measure.tables import BlockView


def version_spans(view: "BlockView") -> Tables:
    """The version tables of a block; none where versions were not sent."""
    source, block = view.block.batch.source, view.block
    versions = source.columns.get("policy_versions")
    lengths = block.lengths.numpy()
    if versions is None or not lengths.sum():
        return {}
    a_token = "policy_versions" in source.a_token
    if a_token:
        values = versions[block.token_range].astype(np.int64)
    else:
        values = np.repeat(versions[block.first : block.last].astype(np.int64), lengths)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    known = values >= 0
    begins = known.copy()
    begins[1:] &= (values[1:] != values[:-1]) | (owners[1:] != owners[:-1])
    counts = np.bincount(owners, known, minlength=len(lengths))
    sequences = int((counts > 0).sum())
    if not sequences:
        return {}
    tables: dict[str, dict[str, float]] = {"versions/spans": {"spans": int(begins.sum()), "sequences": sequences}}
    if view.origin.policy_version is not None:
        lags = np.where(known, view.origin.policy_version - values, 0)
        means = np.bincount(owners, lags, minlength=len(lengths))[counts > 0] / counts[counts > 0]
        tables["versions/spans"]["lag"] = float(means.sum())
        floors, numbers = np.unique(np.floor(means).astype(np.int64), return_counts=True)
        tables["versions/lag"] = {str(f): n for f, n in zip(floors.tolist(), numbers.tolist(), strict=True)}
    return tables
