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
from offpolicy_monitor.core.cells import Cells
from offpolicy_monitor.core.routing import RoutingSums, routing_sums
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.summary.tables.routing import EXPERTS, PART_KEYS, PREFIX
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
    """[4 + 1, layers + 1] of each gap: k3, d^2, |d|, sqrt|d| and valid tokens by how many layers of a token differ."""
    found = {}
    for gap, routed in view.routed().items():
        if gap in view.block.batch.gaps:
            place = view.block.batch.gaps.index(gap)
            changed = torch.from_numpy(routed.changed_layers[view.block.token_range]).to(view.block.batch.device)
            columns = view.gaps.columns
            size = columns.log_ratio_abs[place]
            valid = torch.ones_like(size) if view.valid is None else view.valid[place].to(size.dtype)
            parts = (columns.k3[place], columns.log_ratio_square[place], size, size.sqrt(), valid)
            found[f"routing/{gap}"] = Cells(changed, len(routed.missing) + 1).sums(parts)[1:]
    return found


def tables_of(arrays: Mapping[str, Array], view: BlockView) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables of the gaps whose experts were compared."""
    for gap, routed in view.routed().items():
        tokens = view.block.batch.source.tokens
        if gap in view.block.batch.gaps:
            tokens = int(arrays["gaps/tokens"][view.block.batch.gaps.index(gap)])
        yield from _counts(gap, routed, tokens, view.block.batch.source.columns[EXPERTS[gap][0]].shape[2])
        if f"routing/{gap}" in arrays:
            yield from _divided(gap, arrays[f"routing/{gap}"])


def _counts(gap: str, routed: RoutingSums, tokens: int, k: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Integers alone; no table by layer where nothing differs."""
    layers = len(routed.missing)
    changed = int(np.count_nonzero(routed.changed_layers))
    total = int(routed.changed_layers.sum(dtype=np.int64))
    yield f"{PREFIX}/{gap}/counts/{layers}/{k}", {"tokens": tokens, "changed_tokens": changed, "changed_layers": total}
    if routed.missing.any():
        yield f"{PREFIX}/{gap}/missing/{layers}/{k}", {"": routed.missing}


def _divided(gap: str, sums: Array) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Sums of tokens where all layers agree and where some do not, and those that a line on their number needs."""
    prefix = f"{PREFIX}/{gap}"
    for name, part in (("agreeing", sums[:, :1]), ("changed", sums[:, 1:])):
        *values, tokens = part.sum(1).tolist()
        if tokens:
            yield f"{prefix}/{name}", {"tokens": tokens, **dict(zip(PART_KEYS, values, strict=True))}
    c, (_, squares, _, roots, tokens_by_layers) = np.arange(sums.shape[1]), sums
    if tokens_by_layers[1:].any():
        yield (
            f"{prefix}/trend",
            {
                "layers": int(c @ tokens_by_layers),
                "layers_square": int(c**2 @ tokens_by_layers),
                "layers_moment": float(c @ squares),
                "layers_root": float(c @ roots),
            },
        )
