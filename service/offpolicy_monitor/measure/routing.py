"""Routing tables: how often the experts of two policies differ, and what the tokens hold on which they do.

A gap's tokens are its valid ones, or all under the mask where its log-probs were not sent. Expert ids are compared on
the host (core.routing), once for all blocks. Tables, of every gap whose two expert arrays were sent:
`routing/<gap>/counts/<layers>/<k>`, `routing/<gap>/missing/<layers>/<k>` (by layer), and with log-probs
`routing/<gap>/agreeing`, `.../changed` and `.../trend`. It knows nothing of what is answered.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.batch import Array, RaggedBatch
from offpolicy_monitor.core.cells import Division, sums_by
from offpolicy_monitor.core.routing import RoutingSums, routing_sums
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.summary.tables.routing import EXPERTS, tables_of_gap
from offpolicy_monitor.vocabulary import GAP_LOGPROBS


def compared(batch: RaggedBatch) -> dict[str, RoutingSums]:
    """What differs by gap, over its valid tokens; of gaps whose two expert arrays were sent and that have a token."""
    found = {}
    for gap, names in EXPERTS.items():
        if batch.columns.keys() >= set(names) and batch.tokens:
            valid = _valid(batch, gap)
            if valid is None or valid.any():
                found[gap] = routing_sums(batch.columns[names[0]], batch.columns[names[1]], valid)
    return found


def _valid(batch: RaggedBatch, gap: str) -> Array | None:
    """[T] bool: the gap's valid tokens; None for all."""
    pair = [batch.columns[name] for name in GAP_LOGPROBS[gap] if name in batch.columns]
    valid: Array = np.logical_and(*map(np.isfinite, pair)) if len(pair) == 2 else np.ones(0, bool)
    return None if valid.all() else valid


def sums_of(view: BlockView) -> dict[str, Tensor]:
    """[PART_KEYS, layers + 1] of each gap: k3, d^2, |d| and sqrt|d| by how many layers of a token differ."""
    found = {}
    for gap, routed in view.routed().items():
        if gap in view.block.batch.gaps:
            index = view.block.batch.gaps.index(gap)
            changed = torch.from_numpy(routed.changed_layers[view.block.token_range].astype(np.int32))
            changed = changed.to(view.block.batch.device, non_blocking=True)
            columns = view.gaps.columns
            size = columns.log_ratio_abs[index]
            parts = (columns.k3[index], columns.log_ratio_square[index], size, size.sqrt())
            found[f"routing/{gap}"] = sums_by([Division(changed, len(routed.missing) + 1)], parts)[0].T[1:]
    return found


def tables_of(arrays: Mapping[str, Array], view: BlockView) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables of the gaps whose experts were compared."""
    batch = view.block.batch
    for gap, routed in view.routed().items():
        sent = gap in batch.gaps
        tokens = int(arrays["gaps/tokens"][batch.gaps.index(gap)]) if sent else batch.source.tokens
        by_layers = np.bincount(routed.changed_layers, minlength=len(routed.missing) + 1)
        by_layers[0] -= len(routed.changed_layers) - tokens
        k = batch.source.columns[EXPERTS[gap][0]].shape[2]
        yield from tables_of_gap(gap, k, routed.missing, by_layers, arrays[f"routing/{gap}"] if sent else None)
