"""Log-probs of a block with those that are in no gap: rescored ones, and those of the sampler's support.

Shapes: T tokens of the block. A log-prob that is not finite is 0 here, and a mask says so.
"""

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from offpolicy_monitor.measure.blocks import Block


class Sent(NamedTuple):
    """Log-probs [T], 0 where not finite, and [T] bool which are finite; None for all."""

    values: Tensor
    finite: Tensor | None


def sent_of(block: Block) -> Mapping[str, Sent]:
    """Every log-prob of a block by its name on the wire."""
    batch, span = block.batch, block.token_range
    finite = map(batch.finite_of, range(len(batch.names)))
    columns = dict(zip(batch.names, zip(batch.columns, finite, strict=True), strict=True)) | dict(batch.beside)
    return {
        name: Sent(values[span], None if known is None else known[span]) for name, (values, known) in columns.items()
    }


def both(*masks: Tensor | None) -> Tensor | None:
    """[T] bool: which tokens are in all masks, None for all tokens; a mask of None has all."""
    found: Tensor | None = None
    for mask in masks:
        if mask is not None:
            found = mask if found is None else found & mask
    return found


def number(valid: Tensor | None, values: Tensor) -> Tensor:
    """[] float64: how many tokens are valid, of as many as there are values [T] float64."""
    return values.new_full((), len(values)) if valid is None else valid.sum().double()
