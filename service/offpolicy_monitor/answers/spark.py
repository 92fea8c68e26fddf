"""Sparks: a column of figures as a line of block characters."""

import math
from collections.abc import Callable, Sequence
from typing import Final

BLOCKS: Final = "▁▂▃▄▅▆▇█"
#: Powers of ten between which a k3 is drawn, those of the pages, so that sparks can be compared.
LOW, HIGH = -5.0, -1.0
Height = Callable[[float], float]


def spark(values: Sequence[float | None], width: int) -> str:
    """Of k3s in nats per token on a log axis: a block for the largest value of each stretch, a blank for none."""
    return _drawn(values, width, lambda value: (math.log10(max(value, 10**LOW)) - LOW) / (HIGH - LOW))


def bars(values: Sequence[float | None], width: int) -> str:
    """Of other figures: between 0, or the least where that is below, and the largest."""
    known = [value for value in values if value is not None]
    low, high = min([0.0, *known]), max([0.0, *known])
    return _drawn(values, width, lambda value: (value - low) / (high - low) if high > low else 0.0)


def _drawn(values: Sequence[float | None], width: int, height: Height) -> str:
    count = min(width, len(values))
    stretches = [values[len(values) * index // count : len(values) * (index + 1) // count] for index in range(count)]
    return "".join(_block([value for value in stretch if value is not None], height) for stretch in stretches)


def _block(values: Sequence[float], height: Height) -> str:
    if not values:
        return " "
    return BLOCKS[min(len(BLOCKS) - 1, max(0, int(height(max(values)) * len(BLOCKS))))]
