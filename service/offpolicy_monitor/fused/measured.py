"""A part of a batch through the pass, chunk by chunk, on any number of threads.

Chunks have bounds that follow from the batch alone, and their sums are added in order, so that the figures are the same
bit by bit whatever the number of threads.
"""

from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from offpolicy_monitor.fused import arrays, totals
from offpolicy_monitor.fused.arrays import Doubles, Integers, Sequences, Sums, Tokens
from offpolicy_monitor.fused.batch import Batch, Chosen
from offpolicy_monitor.fused.parts import Part, Workspace
from offpolicy_monitor.fused.results import sums_length, sums_of
from offpolicy_monitor.fused.threads import Threads
from offpolicy_monitor.fused.tokens import measure
from offpolicy_monitor.slices import Slices

#: Tokens that one thread takes at a time: an eighth of the batch, but no fewer than are worth handing over, and no more
#: than leave the threads evenly at work. A longer sequence is a chunk of its own.
EIGHTHS: Final = 8
LEAST_CHUNK, MOST_CHUNK = 1 << 14, 1 << 15


class Left(NamedTuple):
    """What is left of a part's sequences, and of the tokens that were asked for."""

    chosen: Chosen
    tokens: Tokens
    left: Sequences


class Measured(NamedTuple):
    """What a part came to.

    present  which of its tables there are (totals.finish)
    seen     signs of A, and lengths (sequences.add_up)
    room     where its Result lies, which is given back with zeros
    """

    part: Part
    left: Left
    present: int
    seen: int
    room: Workspace


def measured(
    batch: Batch, part: Part, chosen: Chosen, buckets: Integers, ranking: Doubles, threads: Threads
) -> Slices[Measured]:
    """Run a part; buckets [S, dimensions] of its sequences; what ranks them goes to `ranking` (totals.finish)."""
    tokens, sent = batch.tokens(chosen), batch.sent(chosen)
    left = arrays.sequences(tokens.offsets, part.size.token_rules, part.size.sequence_rules, part.rows.detail)
    room, edges = part.workspace(), chunks(tokens.offsets)
    free = [room]

    def work(number: int) -> Sums:
        try:
            own = free.pop()
        except IndexError:
            own = part.workspace()
        into = sums_of(part.size, np.zeros(sums_length(part.size))) if number else room.result.sums
        measure(tokens, sent, own.held, *edges[number], left, into)
        free.append(own)
        return into

    def add(sums: Sums) -> None:
        if sums is not room.result.sums:
            totals.add(room.result.sums, sums)

    yield from threads.each(len(edges), work, add)
    for own in free:
        if own is not room:
            _take_counts(room, own)
            part.give_back(own)
    finish = totals.finish_short if batch.is_short else totals.finish
    present, seen = finish(tokens, room.held, part.sequence_plan(buckets), left, ranking)
    return Measured(part, Left(chosen, tokens, left), present, seen, room)


def _take_counts(room: Workspace, own: Workspace) -> None:
    """Add what another thread has counted, and leave zeros."""
    for mine, theirs in zip(room.result.counts, own.result.counts, strict=True):
        mine += theirs
        theirs[...] = 0


def chunks(offsets: Integers) -> list[tuple[int, int]]:
    """Runs of whole sequences of as many tokens as a chunk has, or more where one is longer."""
    tokens = int(offsets[-1])
    size = min(max(tokens // EIGHTHS, LEAST_CHUNK), MOST_CHUNK)
    if tokens <= size:
        return [(0, len(offsets) - 1)]
    bounds = np.unique(np.searchsorted(offsets, np.arange(0, tokens, size)))
    bounds[0] = 0
    edges = [*bounds.tolist(), len(offsets) - 1]
    return [(first, last) for first, last in pairwise(edges) if last > first]
