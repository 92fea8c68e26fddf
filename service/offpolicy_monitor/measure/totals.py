"""Totals: arrays that blocks of a batch add to on the device, and that come to the host once, at the end."""

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Final, NamedTuple

import torch
from torch import Tensor

from offpolicy_monitor.batch import Array
from offpolicy_monitor.core.cells import Divided, Part, sums_by_cell

_MERGE: Final[Mapping[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "sum": torch.add,
    "min": torch.minimum,
    "max": torch.maximum,
}


#: Arrays by name, of any dtype, or what is to be added up by cells for them.
Counted = Mapping[str, Tensor | Part]


class Sums(NamedTuple):
    """Arrays of a block by name, of any dtype.

    sum    [...] each, or parts, which are added up by cells together: add up over blocks
    terms  [..., N] each, of the block's N sequences: add up over these, then over blocks
    min    [...] each: the least is kept
    max    [...] each: the largest is kept
    each   [..., N] each: kept of each sequence
    """

    sum: Mapping[str, Tensor | Part] = {}
    terms: Mapping[str, Tensor] = {}
    min: Mapping[str, Tensor] = {}
    max: Mapping[str, Tensor] = {}
    each: Mapping[str, Tensor] = {}


class Totals:
    """What all blocks come to. Every block has the same arrays; all become float64, which holds counts to 2^53."""

    def __init__(self) -> None:
        self._shapes: dict[str, torch.Size] = {}
        self._flat: dict[str, list[Tensor]] = {}
        self._each: dict[str, list[Tensor]] = {}

    def add(self, block: Sums) -> None:
        """Add a block's arrays: those of the first stay as they are, of others each way to merge is one operation."""
        whole = block._replace(sum={**_counted(block.sum), **_added(block.terms)}, terms={})
        for kind, merge in _MERGE.items():
            arrays = getattr(whole, kind)
            if arrays:
                self._shapes |= {name: array.shape for name, array in arrays.items()}
                flat, known = [array.double().reshape(-1) for array in arrays.values()], self._flat.get(kind)
                self._flat[kind] = flat if known is None else [merge(torch.cat(known), torch.cat(flat))]
        for name, array in block.each.items():
            self._each.setdefault(name, []).append(array)

    def buffer(self) -> Tensor:
        """All of it on the device, [n] float64."""
        each = {name: arrays[0] if len(arrays) == 1 else torch.cat(arrays, -1) for name, arrays in self._each.items()}
        self._shapes |= {name: array.shape for name, array in each.items()}
        flat = chain(*self._flat.values(), (array.double().reshape(-1) for array in each.values()))
        return torch.cat(list(flat))

    def arrays(self) -> dict[str, Array]:
        """All of it on the host, by name: the one time that a batch waits for its device."""
        if not self._flat:
            return {}
        host, found, end = self.buffer().cpu().numpy(), dict[str, Array](), 0
        for name, shape in self._shapes.items():
            end += shape.numel()
            found[name] = host[end - shape.numel() : end].reshape(tuple(shape))
        return found


def _counted(sums: Counted) -> dict[str, Tensor]:
    """Arrays, and in their stead what parts come to; each division of one as an array, `<name>/<division>`."""
    parts = {name: part for name, part in sums.items() if not isinstance(part, Tensor)}
    arrays = {name: array for name, array in sums.items() if isinstance(array, Tensor)}
    for (name, part), found in zip(parts.items(), sums_by_cell(*parts.values()) if parts else (), strict=True):
        if isinstance(part, Divided):
            names = [f"{name}/{division}" for division in part.divisions]
            arrays |= zip(names, torch.split(found, part.sizes), strict=True)
        else:
            arrays[name] = found
    return arrays


def _added(terms: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Terms of sequences added up over these, all by one operation: [..., N] each -> [...] float64."""
    if not terms:
        return {}
    rows = [array.reshape(-1, array.shape[-1]) for array in terms.values()]
    sums = torch.split(torch.cat(rows).sum(-1, dtype=torch.float64), [len(row) for row in rows])
    return {name: added.view(array.shape[:-1]) for added, (name, array) in zip(sums, terms.items(), strict=True)}
