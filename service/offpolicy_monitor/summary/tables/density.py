"""Densities: how many tokens had which probability in the engine and, at the same time, in the trainer.

A table per gap that begins at mu: mismatch (log pi_old against log mu) and total (log pi against log mu). Both axes
have the same bins of -log p, half powers of two from 2^-10 to 2^4 nats, so that they are as fine near p = 1, where most
tokens of a trained policy stand, as in the tail: equal parts of log p would put nine tokens of ten into one cell. The
first bin has p > 0.999, and log-probs of 0 and above; the last has p < 1.2e-7. On these axes noise is a band around the
diagonal, a temperature a line beside it, and what a nucleus makes certain a column of its own at p = 1. Bins end at a
power of two and at 1.5 times it, which a float32 pattern shows: no logarithm is needed, and all forms count alike.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.summary import rows as schema
from offpolicy_monitor.summary.arrays import Array, Arrays
from offpolicy_monitor.summary.kind import Kind

if TYPE_CHECKING:
    from torch import device

    from offpolicy_monitor.core.cells import Tally
    from offpolicy_monitor.core.histogram import Layout
    from offpolicy_monitor.measure.view import BlockView

GAPS: Final = ("mismatch", "total")
MANTISSA_BITS: Final = 1
SMALLEST_EXPONENT, LARGEST_EXPONENT = -10, 4
#: Bins of an axis: those between edges, p near 1 and p near 0.
BINS: Final = 2 + ((LARGEST_EXPONENT - SMALLEST_EXPONENT) << MANTISSA_BITS)

TABLES: Final = tuple(
    schema.Table(
        f"density/{gap}",
        (schema.count("", "tokens by -log p of the numerator, then of mu", BINS, BINS, total=f"gaps/{gap}/tokens"),),
        "the gap's tokens by both of their probabilities",
        needs=(gap,),
        since=4,
        required=True,
    )
    for gap in GAPS
)


@cache
def edges() -> NDArray[np.float64]:
    """[BINS - 1] log-probs between bins, ascending, nats: each belongs to the bin below it."""
    powers = 2.0 ** np.arange(LARGEST_EXPONENT - 1, SMALLEST_EXPONENT - 1, -1)
    return -np.append(2.0**LARGEST_EXPONENT, (powers[:, None] * (1.5, 1.0)).ravel())


def density(arrays: Arrays, gap: str) -> NDArray[np.int64] | None:
    """[BINS, BINS] tokens by log-prob of the numerator, then of mu, both ascending; None where not all were counted."""
    counts = arrays.get(f"density/{gap}")
    return None if counts is None else counts[::-1, ::-1]


def sums_of(view: "BlockView") -> "dict[str, Tally]":
    """[1, gaps, BINS x BINS] of the gaps that there are; none without mu."""
    from offpolicy_monitor.core.density import joint_tally
    from offpolicy_monitor.core.gap import chosen

    own = [index for index, gap in enumerate(view.block.batch.gaps) if gap in GAPS]
    if not own:
        return {}
    valid = None if view.valid is None else chosen(view.valid, own)
    policies = view.gaps.policies
    return {"density": joint_tally(policies, _layout(policies.device), valid)}


@cache
def _layout(device: "device") -> "Layout":
    import torch

    from offpolicy_monitor.core.histogram import Layout

    return Layout(SMALLEST_EXPONENT, LARGEST_EXPONENT, MANTISSA_BITS, torch.empty(0, device=device))


def tables_of(arrays: Mapping[str, Array], view: "BlockView") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables of gaps with a token."""
    gaps, tokens = view.block.batch.gaps, arrays["gaps/tokens"]
    counted = arrays["density"][0] if "density" in arrays else ()
    for counts, gap in zip(counted, filter(GAPS.__contains__, gaps), strict=True):
        if tokens[gaps.index(gap)]:
            yield f"density/{gap}", {"": counts.reshape(BINS, BINS)}


KIND: Final = Kind("densities", TABLES, measured=__name__, ingested=True)
