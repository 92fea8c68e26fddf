"""How faults that creep or come and go change a healthy step: (state, steps since the onset, size) -> state.

Pure functions; which of them is which scenario, and how large, is known to scenarios.
"""

import math
from dataclasses import replace
from typing import Final

from tests.detection.state import State

#: Steps in which a frozen engine's mean ratio falls.
FROZEN: Final = 2_000


def ramp(after: int, over: float, end: float) -> float:
    """From 1 at the onset's step before, linear to `end` in `over` steps, and constant then."""
    return 1 + (end - 1) * min(1.0, (after + 1) / over)


def drift(state: State, after: int, size: float) -> State:
    """Mean |d| grows to `size` times in 30 steps."""
    return replace(state, scale=state.scale * ramp(after, 30, size))


def spike(state: State, after: int, size: float) -> State:
    """The noise is `size` times as large for one step, and again every fourth."""
    return replace(state, scale=state.scale * (size if after % 4 == 0 else 1))


def stale_replica(state: State, after: int, size: float) -> State:
    """One engine misses eight syncs in a row, and then again: its weights drift as far as a random walk does."""
    return replace(state, stale=size * math.sqrt(after % 8 + 1))


def unsynced(state: State, after: int, size: float) -> State:
    """No engine takes a sync any more: what the trainer learns from then on, the engines do not know."""
    return replace(state, scale=math.hypot(state.scale, size * math.sqrt(after + 1)), learned=0.15)


def frozen(state: State, after: int, size: float) -> State:
    """No engine takes a sync any more, and the policy learns slowly: the mean ratio falls to `size` in 2,000 steps."""
    return replace(state, moved=(1 - size) * min(1.0, (after + 1) / FROZEN), learned=0.15)


def longer(state: State, after: int, size: float) -> State:
    """Answers grow to `size` times in 10 steps."""
    return replace(state, length=state.length * ramp(after, 10, size))


def surer(state: State, after: int, size: float) -> State:
    """In `size` steps nine sequences of ten come to have a fifth of the entropy."""
    return replace(state, certain=0.9 * min(1.0, (after + 1) / size))


def collapse(state: State, after: int, size: float) -> State:
    """Noise grows by `size` e-foldings in 20 steps, the tail breaks, answers double and entropy goes."""
    grown = min(1.0, (after + 1) / 20)
    return replace(
        state,
        scale=state.scale * math.exp(size * grown),
        flat=min(0.6, 0.2 * size * grown),
        length=state.length * (1 + grown),
    )


def blinded(state: State, after: int, size: float) -> State:
    """All tokens become noisier by `size` in 40 steps, while those that a mask sees become as the others."""
    grown = min(1.0, (after + 1) / 40)
    louder = 1 + (size - 1) * grown
    return replace(state, scale=state.scale * louder, uneven=max(1.0, 12 * (1 - grown) / louder))
