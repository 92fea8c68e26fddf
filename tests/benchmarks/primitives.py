"""What the core is built of against what else torch offers for it: the figures behind docs/architecture.md.

Each choice and its alternative on one block of float32 log-ratios; the ratio says how many times faster the choice is.
"""

import numpy as np
import torch
from offpolicy_monitor.core.ragged import Segments

from tests.benchmarks.rows import Row
from tests.benchmarks.scale import Scale
from tests.benchmarks.timing import NANOSECONDS, Progress, Work, seconds_by_turns

TOKENS = 1 << 17
CPU = torch.device("cpu")


def primitive_rows(scale: Scale, progress: Progress) -> list[Row]:
    """Nanoseconds per token of each choice, and how many times faster it is than the alternative."""
    rng = np.random.default_rng(0)
    b = torch.from_numpy(-rng.exponential(0.7, TOKENS).astype(np.float32))
    a = b + torch.from_numpy(rng.normal(0, 0.05, TOKENS).astype(np.float32))
    d = a - b
    segments, lengths = Segments(np.full(TOKENS // 2048, 2048), CPU), torch.full((TOKENS // 2048,), 2048)
    pairs: dict[str, tuple[Work, Work]] = {
        "sums of sequences: numpy over segment_reduce": (
            lambda: segments.sum(d),
            lambda: torch.segment_reduce(d.double(), "sum", lengths=lengths),
        ),
    }
    works = {f"{name}/{side}": work for name, pair in pairs.items() for side, work in enumerate(pair)}
    seconds = seconds_by_turns(works, 5 * scale.repeats, progress)
    ns = {name: value / TOKENS * NANOSECONDS for name, value in seconds.items()}
    return [
        Row(name, ns[f"{name}/0"], "ns per token", ns[f"{name}/1"] / ns[f"{name}/0"], better="more") for name in pairs
    ]
