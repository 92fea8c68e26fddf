"""One chunk of sequences: its runs, and the pass over its tokens, in one call."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from offpolicy_monitor.fused import tokens as blocks
from offpolicy_monitor.fused.arrays import MAXIMA, MINIMA, Integers, Tokens
from offpolicy_monitor.fused.runs import runs_of
from offpolicy_monitor.fused.token import PASS


class Sent(NamedTuple):
    """What runs are made of: each chunk has its own, since tokens may be as many runs."""

    offsets: Integers  # [S + 1]: of all tokens, whether or not they are in the part
    versions: Integers  # [T], or [0] where they change no bucket within sequences
    turns: Integers  # the same
    where: Integers  # [T + 1]: how many of the tokens before each are in the part; [0] where all are
    policy: int


@njit(**PASS)
def measure(
    tokens: Any, sent: Any, plan: Any, bounds: Any, first: Any, last: Any, block: Any, out: Any, into: Any, found: Any
) -> None:
    """Sequences first..last: as tokens.measure, of tokens that have no runs yet."""
    for s in range(first, last):
        out.gaps[s] = 0.0
        for gap in range(3):
            for k in MINIMA:
                out.gaps[s, gap, k] = np.inf
            for k in MAXIMA:
                out.gaps[s, gap, k] = -np.inf
    begins, owners, buckets = runs_of(sent.offsets, first, last, sent.versions, sent.turns, sent.policy)
    if len(sent.where):
        for k in range(len(begins)):
            begins[k] = sent.where[begins[k]]
    own = Tokens(tokens.logprobs, tokens.advantages, tokens.offsets, begins, owners, buckets)
    blocks.measure(own, plan, bounds, first, last, block, out, into, found)
