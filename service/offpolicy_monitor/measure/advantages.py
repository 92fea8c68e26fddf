"""Figures that weigh tokens: by advantage, by gradient mass, and sequences by how much their drift cancels.

r = exp(clip(d, +-80)); D is the sum of d over a sequence. Tables: `sequence/<gap>`, `advantage/<gap>`, and
`gradient/<gap>`, the histogram of |A r|.
"""

import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

from offpolicy_monitor.batch import Array
from offpolicy_monitor.core.advantages import Advantages
from offpolicy_monitor.core.cells import tally
from offpolicy_monitor.core.histogram import Layout, bin_numbers
from offpolicy_monitor.core.ragged import totals
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.summary.tables.advantage import (
    GRADIENT_BINS,
    LARGEST_EXPONENT,
    MANTISSA_BITS,
    SMALLEST_EXPONENT,
)

#: A product ratio below this weighs next to nothing: the sequence has vanished from the gradient.
VANISHING_RATIO: Final = 0.1

#: A token whose two probabilities differ by more than this is a disagreement that no rounding explains.
EXTREME_DIFFERENCE: Final = 0.5

_OF_SEQUENCES: Final = ("moving", "cancelled", "vanishing", "extreme")
_OF_ADVANTAGES: Final = ("advantage_excess", "mass_square", "advantage_square")
_UPDATES: Final = ("bad", "outward", "outward_square")


def sums_of(view: BlockView) -> dict[str, Tensor]:
    """[sums, G] of sequences; with advantages of tokens too, [G, bins] of |A r|, and [3] of the total gap's updates."""
    found = {"sequence": _sequences(view)}
    advantages = view.gaps.advantages
    if advantages is not None:
        found |= _by_advantage(view, advantages)
        if "total" in view.block.batch.gaps:
            found["updates"] = _updates(view, advantages, view.block.batch.gaps.index("total"))
    return found


def _sequences(view: BlockView) -> Tensor:
    """In the order of _OF_SEQUENCES. Where nothing moves there is nothing to cancel."""
    gaps = view.gaps
    magnitude, product = view.own(gaps.sequence_abs_sum), view.own(gaps.sequence_sum)
    moving, tiny = magnitude > 0, torch.finfo(torch.float64).tiny
    cancelled = ((magnitude - product.abs()) / magnitude.clamp(min=tiny)).clamp_(min=0)
    extreme = view.own(gaps.extremes[1][3]) > EXTREME_DIFFERENCE
    return totals([moving, cancelled, product < math.log(VANISHING_RATIO), extreme])


def _by_advantage(view: BlockView, advantages: Advantages) -> dict[str, Tensor]:
    """Products in float64: a ratio may be as large as exp(80)."""
    gaps, values = view.gaps, advantages.of_tokens.double()
    mass = values * view.own(gaps.columns.ratio)
    own = values if view.valid is None else view.valid * values
    return {
        "advantage/advantage_excess": view.own(gaps.columns.excess) @ values,
        "advantage/mass_square": torch.linalg.vecdot(mass, mass),
        "advantage/advantage_square": torch.linalg.vecdot(own, own).expand(view.number),
        "gradient": tally(bin_numbers(mass.abs(), _layout(mass.device)), _layout(mass.device).bins, view.valid),
    }


def _updates(view: BlockView, advantages: Advantages, gap: int) -> Tensor:
    """Tokens whose update is at risk: of the policy that samples against the one that is trained, the total gap.

    `bad`: A < 0 on a token that the numerator has become at least 0.5 less likely to choose; `outward` and
    `outward_square`: tokens with A d > 0, where the gradient pushes the ratio further from 1, and the sum of their d^2.
    A token that is not valid has d = 0, and p = q.
    """
    columns, signs = view.gaps.columns, torch.sign(advantages.of_tokens)
    bad = (columns.probability_difference[gap] < -EXTREME_DIFFERENCE) & (signs < 0)
    outward = columns.log_ratio[gap] * signs > 0
    return totals([bad, outward, columns.log_ratio_square[gap] * outward])


def tables_of(arrays: Mapping[str, Array], view: BlockView) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables of gaps with a token."""
    for index, gap in enumerate(view.block.batch.gaps):
        tokens, sequences = (arrays[f"gaps/{unit}"][index] for unit in ("tokens", "sequences"))
        if not tokens:
            continue
        named = zip(_OF_SEQUENCES, arrays["sequence"][:, index].tolist(), strict=True)
        yield f"sequence/{gap}", {"sequences": sequences, **dict(named)}
        if "gradient" in arrays:
            sums = {name: arrays[f"advantage/{name}"][index] for name in _OF_ADVANTAGES}
            yield f"advantage/{gap}", {"advantage_abs": arrays["advantage_mass"][index], **sums}
            yield f"gradient/{gap}", {"": arrays["gradient"][index, -2 * GRADIENT_BINS :: 2]}
        if gap == "total" and "updates" in arrays:
            updates = zip(_UPDATES, arrays["updates"].tolist(), strict=True)
            yield f"advantage/{gap}#updates", {"tokens": tokens, **dict(updates)}


@cache
def _layout(device: torch.device) -> Layout:
    return Layout(SMALLEST_EXPONENT, LARGEST_EXPONENT, MANTISSA_BITS, torch.empty(0, device=device))
