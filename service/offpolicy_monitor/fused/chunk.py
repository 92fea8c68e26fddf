"""One chunk of sequences before the pass over its tokens: its runs, and room where nothing is the extreme yet."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from offpolicy_monitor.fused.arrays import MAXIMA, MINIMA, Integers, Tokens
from offpolicy_monitor.fused.runs import runs_of
from offpolicy_monitor.fused.token import WITHIN


class Sent(NamedTuple):
    """What runs are made of: each chunk has its own, since tokens may be as many runs."""

    offsets: Integers  # [S + 1]: of all tokens, whether or not they are in the part
    versions: Integers  # [T], or [0] where they change no bucket within sequences
    turns: Integers  # the same
    where: Integers  # [T + 1]: how many of the tokens before each are in the part; [0] where all are
    policy: int


@njit(**WITHIN)
def begun(gaps: Any, first: Any, last: Any) -> None:
    """Sequences first..last of `gaps` [S, 3, ...] as they are before their first token."""
    for s in range(first, last):
        gaps[s] = 0.0
        for gap in range(3):
            for k in MINIMA:
                gaps[s, gap, k] = np.inf
            for k in MAXIMA:
                gaps[s, gap, k] = -np.inf


@njit(**WITHIN)
def with_runs(tokens: Any, sent: Any, first: Any, last: Any) -> Any:
    """Tokens that have no runs yet, with those of the sequences first..last."""
    begins, owners, buckets = runs_of(sent.offsets, first, last, sent.versions, sent.turns, sent.policy)
    if len(sent.where):
        for k in range(len(begins)):
            begins[k] = sent.where[begins[k]]
    return Tokens(tokens.logprobs, tokens.advantages, tokens.offsets, begins, owners, buckets)
