"""Figures that weigh tokens: by advantage, by gradient mass, and sequences by how much their drift cancels.

r = exp(clip(d, +-80)); D is the sum of d over a sequence. Tables: `sequence/<gap>`, `advantage/<gap>`, and
`gradient/<gap>`, the histogram of |A r|.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import torch
from torch import Tensor

from offpolicy_monitor.batch import Array
from offpolicy_monitor.core.advantages import Advantages
from offpolicy_monitor.core.cells import Tally
from offpolicy_monitor.core.device import constant
from offpolicy_monitor.core.ragged import products, total
from offpolicy_monitor.measure.bins import mass_layout
from offpolicy_monitor.measure.totals import Counted
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.summary.tables.advantage import GRADIENT_BINS

#: A product ratio below this weighs next to nothing: the sequence has vanished from the gradient.
VANISHING_RATIO: Final = 0.1

#: A token whose two probabilities differ by more than this is a disagreement that no rounding explains.
EXTREME_DIFFERENCE: Final = 0.5

_OF_SEQUENCES: Final = ("moving", "cancelled", "vanishing", "extreme")
_OF_ADVANTAGES: Final = ("advantage_excess", "mass_square", "advantage_square")
_UPDATES: Final = ("bad", "outward", "outward_square")


def sums_of(view: BlockView) -> Counted:
    """With advantages, sums [G], the tally [1, G, bins] of |A r|, and [3] of the total gap's updates."""
    advantages = view.gaps.advantages
    if advantages is None:
        return {}
    found = _by_advantage(view, advantages)
    if "total" in view.block.batch.gaps:
        found["updates"] = _updates(view, advantages, view.block.batch.gaps.index("total"))
    return found


def terms_of(view: BlockView) -> dict[str, Tensor]:
    """[G, N] of what sequences are. Where nothing moves there is nothing to cancel.

    Nothing is clamped at 0: |D| is beyond the sum of |d| by no more than float64's rounding.
    """
    gaps = view.gaps
    magnitude, product = view.own(gaps.sums.log_ratio_abs), view.own(gaps.sums.log_ratio)
    moving, tiny = magnitude > 0, torch.finfo(torch.float64).tiny
    cancelled = (magnitude - product.abs()) / magnitude.clamp(min=tiny)
    extreme = view.own(gaps.extremes["probability_difference_abs"].max) > EXTREME_DIFFERENCE
    found = (moving, cancelled, product < math.log(VANISHING_RATIO), extreme)
    return {f"sequence/{name}": values for name, values in zip(_OF_SEQUENCES, found, strict=True)}


def _by_advantage(view: BlockView, advantages: Advantages) -> dict[str, Tensor | Tally]:
    """One product of matrices makes all sums of products, of which most are not looked at."""
    gaps, number = view.gaps, view.number
    rows = torch.cat([view.mass, view.own(gaps.mass), view.own(gaps.columns.excess), advantages.of_tokens[None]])
    found = products(rows)
    mass_square, advantage_square, _, _ = torch.split(found.diagonal(), [number, number, number, 1])
    return {
        "advantage/advantage_excess": found[-1, 2 * number : -1],
        "advantage/mass_square": mass_square,
        "advantage/advantage_square": advantage_square,
        "gradient": Tally(view.mass_bins, mass_layout(rows.device).bins, (view.valid,)),
    }


def _updates(view: BlockView, advantages: Advantages, gap: int) -> Tensor:
    """Tokens whose update is at risk: of the policy that samples against the one that is trained, the total gap.

    `bad`: A < 0 on a token that the numerator has become at least 0.5 less likely to choose; `outward` and
    `outward_square`: tokens with A d > 0, where the gradient pushes the ratio further from 1, and the sum of their d^2.
    A token that is not valid has d = 0, and p = q; one that is much less likely and moves outward has A < 0.
    """
    columns = view.gaps.columns
    outward = columns.log_ratio[gap] * advantages.of_tokens > 0
    unlikely, square = columns.probability_difference[gap] < -EXTREME_DIFFERENCE, columns.log_ratio_square[gap]
    one = constant(1.0, square.dtype, square.device).expand(len(square))
    return total(torch.stack([unlikely, one, square]) * outward)


def tables_of(arrays: Mapping[str, Array], view: BlockView) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables of gaps with a token."""
    for index, gap in enumerate(view.block.batch.gaps):
        tokens, sequences = (arrays[f"gaps/{unit}"][index] for unit in ("tokens", "sequences"))
        if not tokens:
            continue
        yield f"sequence/{gap}", {"sequences": sequences, **_of_sequences(arrays, index)}
        if "gradient" in arrays:
            sums = _named(arrays, "advantage", _OF_ADVANTAGES, index)
            yield f"advantage/{gap}", {"advantage_abs": arrays["advantage_mass"][index], **sums}
            yield f"gradient/{gap}", {"": arrays["gradient"][0, index, -2 * GRADIENT_BINS :: 2]}
        if gap == "total" and "updates" in arrays:
            updates = zip(_UPDATES, arrays["updates"].tolist(), strict=True)
            yield f"advantage/{gap}#updates", {"tokens": tokens, **dict(updates)}


def _of_sequences(arrays: Mapping[str, Array], index: int) -> dict[str, Any]:
    """Sums of a gap's sequences, without what rounding takes below 0."""
    found = _named(arrays, "sequence", _OF_SEQUENCES, index)
    return found | {"cancelled": max(found["cancelled"], 0.0)}


def _named(arrays: Mapping[str, Array], prefix: str, names: Iterable[str], index: int) -> dict[str, Any]:
    return {name: arrays[f"{prefix}/{name}"][index] for name in names}
