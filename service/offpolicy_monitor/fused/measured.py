"""A part of a batch through the pass, chunk by chunk, on any number of threads.

Chunks have fixed bounds, and their sums are added in order, so that the figures are the same bit by bit whatever the
number of threads.
"""

from collections.abc import Iterable
from concurrent.futures import Executor
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from offpolicy_monitor.fused import arrays, chunk, totals
from offpolicy_monitor.fused.arrays import Doubles, Integers, Sequences, Sums, Tokens
from offpolicy_monitor.fused.batch import Batch, Chosen
from offpolicy_monitor.fused.parts import Part, Workspace
from offpolicy_monitor.fused.results import sums_length, sums_of
from offpolicy_monitor.slices import Slices

#: Tokens that one thread takes at a time; a longer sequence is a chunk of its own.
CHUNK: Final = 1 << 16


class Left(NamedTuple):
    """What is left of a part's sequences, and of the tokens that were asked for."""

    chosen: Chosen
    tokens: Tokens
    left: Sequences


class Measured(NamedTuple):
    """What a part came to.

    present  which of its tables there are (totals.close)
    room     where its Result lies, which is given back with zeros
    """

    part: Part
    left: Left
    present: int
    room: Workspace


def measured(
    batch: Batch, part: Part, chosen: Chosen, buckets: Integers, ranking: Doubles, threads: Executor | None
) -> Slices[Measured]:
    """Run a part, without threads a chunk a slice; buckets [S, dimensions] of its sequences; what ranks them goes to
    `ranking` (totals.close).
    """
    tokens, sent, bounds = batch.tokens(chosen), batch.sent(chosen), part.rows.tokens
    left = arrays.sequences(tokens.offsets, part.size.token_rules, part.size.sequence_rules, part.rows.detail)
    room = part.workspace()
    free = [room]

    def work(number: int, first: int, last: int) -> Sums:
        own = free.pop() if free else part.workspace()
        into = sums_of(part.size, np.zeros(sums_length(part.size))) if number else room.result.sums
        chunk.measure(tokens, sent, part.plan, bounds, first, last, own.block, left, into, own.result.counts)
        free.append(own)
        return into

    edges = chunks(tokens.offsets)
    run = map if threads is None else threads.map
    found: Iterable[Sums] = run(work, range(len(edges)), *zip(*edges, strict=True))
    for number, sums in enumerate(found if threads is None else list(found)):
        if number:
            totals.add(room.result.sums, sums)
        yield
    for own in free:
        if own is not room:
            room.flats.counts[...] += own.flats.counts
            own.flats.counts[...] = 0
            part.spare.append(own)
    wanted = part.sequence_plan(buckets)
    rows = part.rows
    present = totals.close(tokens, part.plan, bounds, rows.sequences, rows.cuts, wanted, left, room.result, ranking)
    return Measured(part, Left(chosen, tokens, left), present, room)


def chunks(offsets: Integers) -> list[tuple[int, int]]:
    """Runs of whole sequences of CHUNK tokens, or more where one is longer."""
    if offsets[-1] <= CHUNK:
        return [(0, len(offsets) - 1)]
    bounds = np.unique(np.searchsorted(offsets, np.arange(0, int(offsets[-1]), CHUNK)))
    bounds[0] = 0
    edges = [*bounds.tolist(), len(offsets) - 1]
    return [(first, last) for first, last in pairwise(edges) if last > first]
