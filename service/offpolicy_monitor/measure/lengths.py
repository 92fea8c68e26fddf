"""Maker of length tables: how many sequences and tokens there are by length, and how many of them each rule drops.

Lengths are binned in quarters of a power of two. Rules on whole sequences count sequences, others tokens. Tables:
`length/<gap>/sequences`, `length/<gap>/tokens`, `masked/<row>/<gap>/sequences` or `.../tokens`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np
import torch

from offpolicy_monitor.batch import Array
from offpolicy_monitor.core.decision import SequenceDrops, masked_in_sequences
from offpolicy_monitor.core.gap import GapTokens
from offpolicy_monitor.summary.named import Tables
from offpolicy_monitor.summary.tables.lengths import BINS_A_POWER

if TYPE_CHECKING:
    from offpolicy_monitor.measure.tables import BlockView


def lengths(view: "BlockView") -> Tables:
    """The length tables of a block."""
    bins = {name: _bins(valid.gap) for name, valid in view.valid.items()}
    tables: dict[str, Mapping[str, float]] = {}
    for name, valid in view.valid.items():
        counts = valid.gap.segments.counts.cpu().numpy()
        tables[f"length/{name}/sequences"] = _sparse(bins[name], np.ones(len(counts)))
        tables[f"length/{name}/tokens"] = _sparse(bins[name], counts)
    for row, decision in view.decisions:
        masked = masked_in_sequences(view.valid[row.gap].gap, decision)
        if masked is not None:
            unit = "sequences" if isinstance(decision, SequenceDrops) else "tokens"
            place = f"masked/{quote(row.name, safe='')}/{row.gap}/{unit}"
            tables[place] = _sparse(bins[row.gap], masked.cpu().numpy())
    return tables


def _bins(gap: GapTokens) -> Array:
    """[N] int64: floor(4 log2(tokens))."""
    bins: Array = torch.floor(torch.log2(gap.segments.counts) * BINS_A_POWER).long().cpu().numpy()
    return bins


def _sparse(bins: Array, values: Array) -> dict[str, float]:
    added = np.bincount(bins, values)
    return {str(place): int(added[place]) for place in np.flatnonzero(added).tolist()}
