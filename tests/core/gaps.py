"""Gaps from plain lists, for the tests of core/."""

import numpy as np
import torch
from offpolicy_monitor.core.advantages import Advantages
from offpolicy_monitor.core.gap import Gaps
from offpolicy_monitor.core.ragged import Segments

CPU = torch.device("cpu")


def segments(*lengths: int) -> Segments:
    return Segments(np.array(lengths, np.int64), CPU)


def gap_of(
    numerator: list[list[float]],
    denominator: list[list[float]],
    advantages: list[float] | list[list[float]] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Gaps:
    """One list per sequence; advantages one per sequence (a list) or one per token (a list of lists)."""
    parts = segments(*(len(sequence) for sequence in numerator))
    a, b = (torch.tensor([x for s in side for x in s], dtype=dtype) for side in (numerator, denominator))
    own = None
    if advantages is not None:
        flat = [x for s in advantages for x in (s if isinstance(s, list) else [s])]
        own = Advantages(torch.tensor(flat, dtype=dtype), isinstance(advantages[0], list), parts)
    return Gaps(torch.stack([b, a]), ((1, 0),), parts, own)


def gap_of_log_ratios(
    d: list[list[float]],
    advantages: list[float] | list[list[float]] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Gaps:
    """A gap whose log-ratios are exactly d: the denominator's log-probs are 0."""
    return gap_of(d, [[0.0] * len(s) for s in d], advantages, dtype)
