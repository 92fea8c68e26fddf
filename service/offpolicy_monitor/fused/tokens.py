"""The pass over the tokens of a chunk of sequences: block by block through every stage.

A block ends where BLOCK tokens do; within it, runs and sequences are looked at piece by piece, and what belongs to all
tokens at once. The order of a block: columns, runs, pieces of sequences, then rules, which need to know the extremes.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from offpolicy_monitor.fused import chunk, columns, counts, decided, sums
from offpolicy_monitor.fused.arrays import (
    AWAY,
    AWAY_LEAST,
    AWAY_MOST,
    BINS,
    BLOCK,
    DENOMINATOR,
    DENSE,
    K3,
    LARGER,
    LARGER_LEAST,
    LEAST,
    LEAST_ABS,
    LOG_RATIO,
    MAGNITUDE,
    MISMATCH,
    MOST,
    NEUTRAL,
    NUMERATOR,
    PD_LEAST,
    PD_LEAST_ABS,
    PD_MOST,
    PROBABILITY,
    PRODUCT,
    SCORES,
    SUM,
    TOTAL,
)
from offpolicy_monitor.fused.bits import STRIDE, filled, lowest
from offpolicy_monitor.fused.token import BIG, PASS, STAGES, ZERO, f
from offpolicy_monitor.summary import cells
from offpolicy_monitor.summary.tables.signature import HIGHEST_MIDDLE, LOWEST_MIDDLE
from offpolicy_monitor.summary.tables.signature import LEAST as LEAST_ON_GRID

_LOWEST, _HIGHEST = f(math.log(LOWEST_MIDDLE)), f(math.log(HIGHEST_MIDDLE))
_GRID = tuple(f(LEAST_ON_GRID[name]) for name in ("sampling", "old", "difference"))
#: What-if bins of tokens are one from minus to plus this.
_NEAR_ZERO = f(2.0**cells.LEAST_OF_TOKENS)
_ZERO_BIN = cells.TOKEN_BINS.zero
_COARSE_BINS = cells.TOKEN_BINS.number


@njit(**PASS)
def measure(unrun: Any, sent: Any, held: Any, first: Any, last: Any, out: Any, into: Any) -> None:
    """Sequences first..last: Tokens without runs, Sent, Held -> Sequences `out`, Sums `into`, the Counts of `held`.

    This is the entry, since whatever called it would be compiled with all of it a second time.
    """
    plan, bounds, block, found = held.plan, held.tokens, held.block, held.result.counts
    chunk.begun(out.gaps, first, last)
    tokens = chunk.with_runs(unrun, sent, first, last)
    offsets, runs = tokens.offsets, tokens.runs
    begin, end = offsets[first], offsets[last]
    run = np.searchsorted(runs, begin, side="right") - 1
    sequence = first
    while sequence < last and offsets[sequence + 1] <= begin:
        sequence += 1
    local = np.zeros((len(plan.cells), 4, _COARSE_BINS), np.int32)
    pieces = np.zeros((3, 8))
    whole = np.zeros((3, 3))
    bounds_seen = np.zeros((SCORES, 3, 2), np.float32)
    while begin < end:
        n = min(BLOCK, end - begin)
        _columns(tokens, plan, begin, n, block, into, found)
        whole[:] = 0.0
        run = _runs(tokens, plan, begin, n, run, block, pieces, whole, out, into)
        bounds_seen[:, :, 0] = BIG
        bounds_seen[:, :, 1] = -BIG
        for score in (MAGNITUDE, K3):  # their extremes are not looked for
            bounds_seen[score, :, 0] = -np.inf
            bounds_seen[score, :, 1] = np.inf
        _advantages(tokens, plan, begin, n, sequence, block)
        earliest = sequence
        sequence = _sequences(tokens, plan, begin, n, sequence, last, block, local, bounds_seen, out, into, found)
        _of_all(tokens, plan, begin, n, block, whole, into, found)
        decided.decide(tokens, plan, bounds, begin, n, earliest, block, whole, bounds_seen, out, into)
        begin += n


@njit(**STAGES)
def _columns(tokens: Any, plan: Any, begin: Any, n: Any, block: Any, into: Any, found: Any) -> None:
    """Every column of the block, and the sums that need columns which the next gap overwrites."""
    for column in range(3):
        values = tokens.logprobs[column]
        if len(values):
            columns.probabilities(values[begin : begin + n], block.p[column], block.rest[column])
    for gap in range(3):
        if not plan.gaps[gap]:
            continue
        a = tokens.logprobs[NUMERATOR[gap]][begin : begin + n]
        b = tokens.logprobs[DENOMINATOR[gap]][begin : begin + n]
        columns.exponentials(block, gap, n, a, b)
        columns.differences(block, gap, n)
        if not plan.alone:
            sums.ratio_sums(
                block.scores[LOG_RATIO, gap, :n], block.ratio[gap, :n], block.excess[gap, :n], block.k3_reverse[:n],
                block.js[:n], into.tokens[gap],
            )  # fmt: skip
            sums.difference_sums(block.scores[PROBABILITY, gap, :n], into.tokens[gap])
            columns.bins_of(block.scores[LOG_RATIO, gap, :n], plan.splits, block.bins[gap])
        if plan.divergences[gap]:
            columns.divergences(block, gap, n)
            if plan.positive:
                columns.divergences_above_one(block, gap, n, a, b)
        if plan.magnitudes:
            columns.magnitudes(block.scores[LOG_RATIO, gap, :n], block.scores[MAGNITUDE, gap])


@njit(**STAGES)
def _runs(
    tokens: Any, plan: Any, begin: Any, n: Any, run: Any, block: Any, pieces: Any, whole: Any, out: Any, into: Any
) -> Any:
    """Sums of sequences, and breakdowns by what stands in runs; the run that goes on in the next block."""
    i = 0
    while i < n:
        j = min(n, tokens.runs[run + 1] - begin)
        sequence = tokens.owners[run]
        for gap in range(3):
            if not plan.gaps[gap]:
                continue
            piece = pieces[gap]
            sums.run_sums(
                block.scores[LOG_RATIO, gap, i:j], block.scores[K3, gap, i:j], block.growth[gap, i:j], piece
            )  # fmt: skip
            kept = out.gaps[sequence, gap]
            for k in range(5):
                kept[SUM + k] += piece[k]
            kept[LEAST] = min(kept[LEAST], piece[5])
            kept[MOST] = max(kept[MOST], piece[6])
            kept[LEAST_ABS] = min(kept[LEAST_ABS], piece[7])
            for k in range(3):
                whole[gap, k] += piece[0 if k == 0 else k + 1]
        product = 0.0
        if plan.joint:
            product = sums.dot(block.scores[LOG_RATIO, 0, i:j], block.scores[LOG_RATIO, 1, i:j])
            out.own[sequence, PRODUCT] += product
        for dimension in range(tokens.buckets.shape[1]):
            cell = into.runs[dimension, :, tokens.buckets[run, dimension]]
            cell[0] += j - i
            for gap in range(3):
                if plan.gaps[gap]:
                    for k in range(4):
                        cell[1 + 4 * gap + k] += pieces[gap, k]
            cell[13] += product
        if tokens.runs[run + 1] - begin <= j:
            run += 1
        i = j
    return run


@njit(**STAGES)
def _advantages(tokens: Any, plan: Any, begin: Any, n: Any, sequence: Any, block: Any) -> None:
    """The advantage of each token, and where the counts of its sign begin."""
    A, groups = block.advantages[:n], block.groups[:n]
    if not plan.advantages:
        A[:] = ZERO
        groups[:] = NEUTRAL * BINS
    elif plan.per_token:
        own = tokens.advantages[begin : begin + n]
        for i in range(n):
            A[i] = own[i]
            groups[i] = counts.sign_of(own[i]) * BINS
    else:
        i = 0
        while i < n:
            j = min(n, tokens.offsets[sequence + 1] - begin)
            if i < j:
                A[i:j] = tokens.advantages[sequence]
                groups[i:j] = counts.sign_of(tokens.advantages[sequence]) * BINS
                i = j
            sequence += 1


@njit(**STAGES)
def _sequences(
    tokens: Any, plan: Any, begin: Any, n: Any, sequence: Any, last: Any, block: Any, local: Any, seen: Any,
    out: Any, into: Any, found: Any,
) -> Any:  # fmt: skip
    """Figures of each sequence's part of the block; the sequence that goes on in the next one."""
    i = np.int64(0)  # for a literal, what takes it would be compiled a second time
    while i < n:
        j = min(n, tokens.offsets[sequence + 1] - begin)
        for gap in range(3):
            if plan.gaps[gap]:
                _extremes(plan, gap, i, j, block, seen, out.gaps[sequence, gap])
        _signed(tokens, plan, begin, i, j, sequence, block, out)
        if not plan.alone:
            own = out.own[sequence]
            for column in range(3):
                if len(tokens.logprobs[column]):
                    own[column] += sums.doubles_of(tokens.logprobs[column][begin + i : begin + j])
            if plan.gaps[MISMATCH]:
                sums.neighbours(
                    tokens.logprobs[1][max(begin + i - 1, tokens.offsets[sequence]) : begin + j],
                    tokens.logprobs[0][max(begin + i - 1, tokens.offsets[sequence]) : begin + j],
                    into.neighbours[:2],
                )
            _cells(tokens, plan, i, j, sequence, block, local, into, found)
        i = j
        if tokens.offsets[sequence + 1] - begin <= j:
            _flush(tokens, plan, sequence, local, into, found)
            sequence += 1
            while sequence < last and tokens.offsets[sequence + 1] == tokens.offsets[sequence]:
                sequence += 1
    return sequence


@njit(**STAGES)
def _extremes(plan: Any, gap: Any, i: Any, j: Any, block: Any, seen: Any, kept: Any) -> None:
    """Extremes of a sequence's scores; those of the block so far go to `seen`."""
    least, most, _ = sums.extremes(block.scores[LOG_RATIO, gap, i:j])
    _see(seen[LOG_RATIO, gap], least, most)
    least, most, nearest = sums.extremes(block.scores[PROBABILITY, gap, i:j])
    _see(seen[PROBABILITY, gap], least, most)
    kept[PD_LEAST] = min(kept[PD_LEAST], least)
    kept[PD_MOST] = max(kept[PD_MOST], most)
    kept[PD_LEAST_ABS] = min(kept[PD_LEAST_ABS], nearest)
    if plan.divergences[gap]:
        least, most, _ = sums.extremes(block.scores[AWAY, gap, i:j])
        _see(seen[AWAY, gap], least, most)
        kept[AWAY_LEAST] = min(kept[AWAY_LEAST], least)
        kept[AWAY_MOST] = max(kept[AWAY_MOST], most)
        least, most, _ = sums.extremes(block.scores[LARGER, gap, i:j])
        _see(seen[LARGER, gap], least, most)
        kept[LARGER_LEAST] = min(kept[LARGER_LEAST], least)


@njit(**STAGES)
def _see(seen: Any, least: Any, most: Any) -> None:
    seen[0] = min(seen[0], least)
    seen[1] = max(seen[1], most)


@njit(**STAGES)
def _signed(tokens: Any, plan: Any, begin: Any, i: Any, j: Any, sequence: Any, block: Any, out: Any) -> None:
    """Sums by sign of A, where a sequence's tokens may differ in it."""
    if not plan.per_token:
        return
    sums.advantages_by_sign(block.advantages[i:j], out.own[sequence])
    for gap in range(3):
        if plan.gaps[gap]:
            d, k3 = block.scores[LOG_RATIO, gap, i:j], block.scores[K3, gap, i:j]
            sums.sums_by_sign(block.groups[i:j], d, k3, out.gaps[sequence, gap])


@njit(**STAGES)
def _cells(
    tokens: Any, plan: Any, i: Any, j: Any, sequence: Any, block: Any, local: Any, into: Any, found: Any
) -> None:  # fmt: skip
    """What-if cells of a sequence's part of the block."""
    length = counts.length_group(tokens.offsets[sequence + 1] - tokens.offsets[sequence])
    for c in range(len(plan.cells)):
        gap, score = plan.cells[c]
        values = block.scores[score, gap, i:j]
        if score == LOG_RATIO:
            bins = block.bins[gap, i:j]
        else:
            bins = block.keys[: j - i]
            least, most, _ = sums.extremes(values)
            if least > -_NEAR_ZERO and most < _NEAR_ZERO and not plan.per_token:
                local[c, 0, _ZERO_BIN] += j - i
                continue
            columns.bins_of(values, plan.splits, bins)
        if plan.per_token:
            counts.by_sign_and_coarse_bin(
                bins, plan.token_bins, block.groups[i:j], block.advantages[i:j], length, found.cells[c], into.masses[c]
            )  # fmt: skip
        else:
            counts.by_coarse_bin(bins, plan.token_bins, local[c])


@njit(**STAGES)
def _flush(tokens: Any, plan: Any, sequence: Any, local: Any, into: Any, found: Any) -> None:
    """Put the cells of a sequence that has ended where its sign and length are counted."""
    if plan.per_token or plan.alone:
        return
    length = counts.length_group(tokens.offsets[sequence + 1] - tokens.offsets[sequence])
    A = np.float64(tokens.advantages[sequence]) if plan.advantages else 0.0
    sign = counts.sign_of(A)
    for c in range(len(plan.cells)):
        own = local[c, 0]
        for index in range(_COARSE_BINS):
            own[index] += local[c, 1, index] + local[c, 2, index] + local[c, 3, index]
        for start in range(0, _COARSE_BINS, STRIDE):
            left = filled(own, start, _COARSE_BINS)
            while left:
                index = start + lowest(left)
                found.cells[c, sign, length, index] += own[index]
                into.masses[c, sign, index] += abs(A) * own[index]
                left &= left - 1
        local[c] = 0


@njit(**STAGES)
def _of_all(tokens: Any, plan: Any, begin: Any, n: Any, block: Any, whole: Any, into: Any, found: Any) -> None:
    """What the block's tokens give whatever the sequence."""
    if plan.alone:
        if len(tokens.logprobs[0]):
            _by_mu(tokens, plan, begin, n, block, into)
        if plan.per_token:
            counts.signs_of(block.groups[:n], block.keys)
            sums.sums_by_bucket(block, n, into.signs)
        return
    mu, old = tokens.logprobs[0], tokens.logprobs[1]
    A = block.advantages[:n]
    sums.products(block.p[0, :n], block.p[1], block.p[2], into.products)
    for gap in range(3):
        if not plan.gaps[gap]:
            continue
        d = block.scores[LOG_RATIO, gap, :n]
        sums.deviation(d, whole[gap, 0], into.tokens[gap])
        counts.by_sign_and_bin(block.bins[gap, :n], block.groups, found.histograms[gap])
        if plan.advantages:
            sums.mass_sums(A, block.ratio[gap], block.excess[gap], into.tokens[gap])
            columns.mass_keys(block.ratio[gap, :n], A, block.keys)
            counts.in_banks(block.keys[:n], found.masses[gap])
    if plan.advantages:
        sums.advantage_sums(A, into.advantages)
        if plan.gaps[TOTAL]:
            sums.updates_at_risk(
                A, block.scores[LOG_RATIO, TOTAL, :n], block.scores[PROBABILITY, TOTAL], into.tokens[TOTAL]
            )  # fmt: skip
        if plan.per_token:
            counts.signs_of(block.groups[:n], block.keys)
            sums.sums_by_bucket(block, n, into.signs)
    if len(mu):
        _by_mu(tokens, plan, begin, n, block, into)
    if plan.densities:
        for k in range(len(DENSE)):
            if plan.gaps[DENSE[k]]:
                numerator = tokens.logprobs[NUMERATOR[DENSE[k]]]
                columns.density_keys(numerator[begin : begin + n], mu[begin : begin + n], block.keys)
                counts.in_banks(block.keys[:n], found.densities[k])
    if plan.gaps[MISMATCH]:
        d = block.scores[LOG_RATIO, MISMATCH, :n]
        sums.regression(mu[begin : begin + n], d, _LOWEST, _HIGHEST, into.regression)
        sums.moments(old[begin : begin + n], mu[begin : begin + n], into.neighbours[2:])
        if plan.grids:
            counts.grid(mu[begin : begin + n], _GRID[0], found.grids[0])
            counts.grid(old[begin : begin + n], _GRID[1], found.grids[1])
            counts.grid(d, _GRID[2], found.grids[2])


@njit(**STAGES)
def _by_mu(tokens: Any, plan: Any, begin: Any, n: Any, block: Any, into: Any) -> None:
    counts.buckets_of(tokens.logprobs[0][begin : begin + n], plan.edges, block.keys)
    sums.sums_by_bucket(block, n, into.mu)
