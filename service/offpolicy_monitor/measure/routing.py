"""Maker of routing tables: how often the experts of two policies differ, and what the tokens hold on which they do.

A gap's tokens are its valid ones, or all under the mask where its log-probs were not sent. Tables, of every gap whose
two expert arrays were sent: `routing/<gap>/counts/<layers>/<k>`, `routing/<gap>/missing/<layers>/<k>` (by layer), and
with log-probs `routing/<gap>/agreeing`, `.../changed` and `.../trend`. It knows nothing of what is answered.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from offpolicy_monitor.batch import Array
from offpolicy_monitor.core.cells import Cells
from offpolicy_monitor.core.gap import GapTokens
from offpolicy_monitor.core.routing import routing_sums
from offpolicy_monitor.summary.named import Table, Tables
from offpolicy_monitor.summary.tables.routing import PART_KEYS, PREFIX

if TYPE_CHECKING:
    from offpolicy_monitor.measure.tables import BlockView

#: gap -> (experts of its numerator policy, experts of its denominator policy)
EXPERT_COLUMNS: Final[Mapping[str, tuple[str, str]]] = {
    "mismatch": ("old_experts", "sampling_experts"),
    "staleness": ("experts", "old_experts"),
    "total": ("experts", "sampling_experts"),
}


def routing(view: "BlockView") -> Tables:
    """The routing tables of a block; none where fewer than two expert arrays were sent."""
    source, span = view.block.batch.source, view.block.token_range
    tables: dict[str, Table] = {}
    for gap, names in EXPERT_COLUMNS.items():
        if source.columns.keys() >= set(names) and (gap in view.valid or gap not in view.block.batch.gaps):
            tables |= _of_gap(view, gap, *(source.columns[name][span] for name in names))
    return tables


def _of_gap(view: "BlockView", gap: str, a: Array, b: Array) -> Tables:
    """The tables of one gap: a, b [T, layers, k] are the experts of the block's tokens."""
    valid = view.valid.get(gap)
    chosen = None
    if valid is not None and valid.tokens is not None:
        chosen = np.zeros(len(a), bool)
        chosen[valid.tokens.cpu().numpy()] = True
    sums = routing_sums(a, b, chosen)
    layers = sums.changed_layers if chosen is None else sums.changed_layers[chosen]
    prefix = f"{PREFIX}/{gap}"
    tables = _counts(prefix, a.shape[1:], sums.missing, layers)
    return tables if valid is None else {**tables, **_divided(prefix, valid.gap, layers, a.shape[1])}


def _counts(prefix: str, inner: tuple[int, ...], missing: Array, changed_layers: Array) -> Tables:
    """Integers alone; layers without a difference have no entry."""
    if not len(changed_layers):
        return {}
    layers, k = inner
    counts = {
        "tokens": len(changed_layers),
        "changed_tokens": int(np.count_nonzero(changed_layers)),
        "changed_layers": int(changed_layers.sum()),
    }
    by_layer = {str(layer): int(missing[layer]) for layer in np.flatnonzero(missing).tolist()}
    tables: dict[str, Table] = {f"{prefix}/counts/{layers}/{k}": counts}
    return {**tables, f"{prefix}/missing/{layers}/{k}": by_layer} if by_layer else tables


def _divided(prefix: str, gap: GapTokens, changed_layers: Array, layers: int) -> Tables:
    """Sums of a gap's tokens where all layers agree and where some do not, and those that a line on their number needs.

    changed_layers [T] int16: c, how many layers of each valid token differ.
    """
    cells = Cells(torch.from_numpy(changed_layers).to(gap.log_ratio.device), layers + 1)
    columns = gap.columns
    size = columns.log_ratio_abs
    sums = cells.sums((columns.k3, columns.log_ratio_square, size, size.sqrt())).cpu().numpy()
    tables: dict[str, Table] = {}
    for name, part in (("agreeing", sums[:, :1]), ("changed", sums[:, 1:])):
        tokens, *values = part.sum(1).tolist()
        if tokens:
            tables[f"{prefix}/{name}"] = {"tokens": int(tokens), **dict(zip(PART_KEYS, values, strict=True))}
    c = np.arange(layers + 1)
    if f"{prefix}/changed" in tables:
        tables[f"{prefix}/trend"] = {
            "layers": int(c @ sums[0]),
            "layers_square": int(c**2 @ sums[0]),
            "layers_moment": float(c @ sums[2]),
            "layers_root": float(c @ sums[4]),
        }
    return tables
