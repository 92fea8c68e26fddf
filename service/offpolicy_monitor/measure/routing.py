"""Routing tables: how often the experts of two policies differ, and what the tokens hold on which they do.

A gap's tokens are its valid ones, or all under the mask where its log-probs were not sent. Expert ids are compared on
the host (core.routing), once for all blocks. Tables, of every gap whose two expert arrays were sent:
`routing/<gap>/counts/<layers>/<k>`, `routing/<gap>/missing/<layers>/<k>` (by layer), and with log-probs
`routing/<gap>/agreeing`, `.../changed` and `.../trend`. It knows nothing of what is answered.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch

from offpolicy_monitor.batch import Array, RaggedBatch
from offpolicy_monitor.core.cells import Divided
from offpolicy_monitor.core.gap import chosen
from offpolicy_monitor.core.routing import RoutingSums, routing_sums
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.summary.tables.routing import EXPERTS, PART_KEYS, tables_of_gap
from offpolicy_monitor.vocabulary import GAP_LOGPROBS

#: What its array is named by.
NAME: Final = "routing"
_LAYERS: Final = "layers"


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


def sums_of(view: BlockView) -> dict[str, Divided]:
    """[gaps x (layers + 1), 1 + PART_KEYS]: tokens, and k3, d^2, |d| and sqrt|d| by how many of a token's layers
    differ."""
    batch = view.block.batch
    routed = {gap: found for gap, found in view.routed().items() if gap in batch.gaps}
    if not routed:
        return {}
    columns, gaps = view.gaps.columns, [batch.gaps.index(gap) for gap in routed]
    summed = (columns.k3, columns.log_ratio_square, columns.log_ratio_abs, columns.log_ratio_abs.sqrt())
    changed = np.array([found.changed_layers[view.block.token_range] for found in routed.values()], np.int32)
    size = max(len(found.missing) for found in routed.values()) + 1
    cells = torch.from_numpy(changed + size * np.arange(len(gaps), dtype=np.int32)[:, None])
    division = cells.flatten().to(batch.device, non_blocking=True), size * len(gaps)
    return {NAME: Divided({_LAYERS: division}, [chosen(values, gaps).flatten() for values in summed])}


def tables_of(arrays: Mapping[str, Array], view: BlockView) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables of the gaps whose experts were compared."""
    batch, compared = view.block.batch, view.routed()
    number = sum(gap in batch.gaps for gap in compared)
    found = iter(arrays[f"{NAME}/{_LAYERS}"].reshape(number, -1, 1 + len(PART_KEYS)) if number else ())
    for gap, routed in compared.items():
        sent = gap in batch.gaps
        tokens = int(arrays["gaps/tokens"][batch.gaps.index(gap)]) if sent else batch.source.tokens
        by_layers = np.bincount(routed.changed_layers, minlength=len(routed.missing) + 1)
        by_layers[0] -= len(routed.changed_layers) - tokens
        k = batch.source.columns[EXPERTS[gap][0]].shape[2]
        sums = next(found)[: len(by_layers)].T[1:] if sent else None
        yield from tables_of_gap(gap, k, routed.missing, by_layers, sums)
