"""Maker of figures that weigh tokens: by advantage, by gradient mass, and sequences by how much their drift cancels.

r = exp(clip(d, +-80)); D is the sum of d over a sequence. Tables: `sequence/<gap>`, `advantage/<gap>`, and
`gradient/<gap>`, the histogram of |A r|.
"""

import math
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.core.gap import GapTokens
from offpolicy_monitor.core.histogram import Layout, bin_numbers
from offpolicy_monitor.core.select import places_above, places_below
from offpolicy_monitor.summary.named import Table, Tables
from offpolicy_monitor.summary.tables.advantage import LARGEST_EXPONENT, MANTISSA_BITS, SMALLEST_EXPONENT

if TYPE_CHECKING:
    from offpolicy_monitor.measure.tables import BlockView

#: A product ratio below this weighs next to nothing: the sequence has vanished from the gradient.
VANISHING_RATIO: Final = 0.1

#: A token whose two probabilities differ by more than this is a disagreement that no rounding explains.
EXTREME_DIFFERENCE: Final = 0.5


def weighted(view: "BlockView") -> Tables:
    """The tables of a block."""
    tables: dict[str, Table] = {}
    for name, valid in view.valid.items():
        tables[f"sequence/{name}"] = _sequences(valid.gap)
        if valid.gap.advantages is not None:
            tables |= _by_advantage(name, valid.gap)
    return tables


def _sequences(gap: GapTokens) -> Table:
    moving = gap.sequence_abs_sum > 0
    magnitude = gap.sequence_abs_sum[moving]
    cancelled = (magnitude - gap.sequence_sum[moving].abs()) / magnitude
    return {
        "sequences": gap.segments.sequences,
        "moving": len(magnitude),
        "cancelled": float(cancelled.clamp(0, 1).sum()),
        "vanishing": int((gap.sequence_sum < math.log(VANISHING_RATIO)).sum()),
        "extreme": len(torch.unique(gap.segments.owners(_extreme(gap)))),
    }


def _extreme(gap: GapTokens) -> Tensor:
    """Places of the tokens whose two probabilities are far apart, either way."""
    difference = gap.columns.probability_difference
    return torch.cat([places_above(difference, EXTREME_DIFFERENCE), places_below(difference, -EXTREME_DIFFERENCE)])


def _by_advantage(name: str, gap: GapTokens) -> dict[str, Table]:
    """Products in float64: a ratio may be as large as exp(80)."""
    values = _advantages(gap)
    mass = values * gap.columns.ratio
    sums = {
        "advantage_excess": torch.dot(values, gap.columns.excess.double()),
        "advantage_abs": gap.advantages.mass.sum() if gap.advantages else values.new_zeros(()),
        "mass_square": torch.dot(mass, mass),
        "advantage_square": torch.dot(values, values),
    }
    at_risk = _updates(gap) if name == "total" else {}
    return {
        f"advantage/{name}": {**{key: float(value) for key, value in sums.items()}, **at_risk},
        f"gradient/{name}": _histogram(mass),
    }


def _updates(gap: GapTokens) -> Table:
    """Tokens whose update is at risk: of the policy that samples against the one that is trained, the total gap.

    `bad`: A < 0 on a token that the numerator has become at least 0.5 less likely to choose; `outward` and
    `outward_square`: tokens with A d > 0, where the gradient pushes the ratio further from 1, and the sum of their d^2.
    """
    assert gap.advantages is not None
    less_likely = places_below(gap.columns.probability_difference, -EXTREME_DIFFERENCE)
    outward = _signs(gap) * gap.log_ratio > 0
    return {
        "tokens": gap.segments.tokens,
        "bad": int((gap.advantages.at(less_likely) < 0).sum()),
        "outward": int(outward.sum()),
        "outward_square": float(gap.columns.log_ratio_square[outward].double().sum()),
    }


def _signs(gap: GapTokens) -> Tensor:
    """[T] float: the sign of each token's advantage."""
    assert gap.advantages is not None
    signs = torch.sign(gap.advantages.values)
    return signs if gap.advantages.a_token else gap.segments.spread(signs)


def _advantages(gap: GapTokens) -> Tensor:
    """[T] float64: the advantage of each token."""
    assert gap.advantages is not None
    values = gap.advantages.values.double()
    return values if gap.advantages.a_token else gap.segments.spread(values)


def _histogram(mass: Tensor) -> Table:
    """Tokens by the key of |A r|: 0 below 2**-24, then 16 keys a power of two, up to 2**24."""
    layout = _layout(mass.device)
    keys = (bin_numbers(mass.abs(), layout) // 2).sub_(layout.largest_key)
    counts = torch.bincount(keys, minlength=1).cpu().numpy()
    return {str(key): int(counts[key]) for key in np.flatnonzero(counts).tolist()}


@cache
def _layout(device: torch.device) -> Layout:
    layout = Layout(SMALLEST_EXPONENT, LARGEST_EXPONENT, MANTISSA_BITS, torch.empty(0))
    splits = torch.full((2 * layout.largest_key + 1,), torch.inf, device=device)
    return Layout(SMALLEST_EXPONENT, LARGEST_EXPONENT, MANTISSA_BITS, splits)
