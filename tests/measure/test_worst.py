"""The worst sequences against a loop over tokens in float64, on ragged batches with holes and non-finite log-probs."""

import math
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.summary.tables.ranking import FEW, first_of_each
from offpolicy_monitor.summary.tables.worst import GAPS, MOST, MOST_TOKENS, RANKINGS, Worst
from offpolicy_monitor.vocabulary import GAP_LOGPROBS, LOGPROBS

from tests.measure.test_breakdowns import batch
from tests.summary.worst_one_by_one import one_by_one, ranked, worst_of
from tests.summary.worst_one_by_one import worst as in_columns


def measured(data: RaggedBatch, shard: int = 0, block_tokens: int = 1 << 18, keep: int = 0) -> Worst:
    measurer = Measurer("cpu", keep_worst=keep)
    measurer.block_tokens = block_tokens
    return measurer.measure(data, (), Origin(shard=shard), ()).worst


def plain(*logprobs: list[list[float]], dtype: type[np.floating] = np.float32) -> RaggedBatch:
    """A batch of the log-probs of LOGPROBS, each a list of sequences."""
    names = LOGPROBS if len(logprobs) == 3 else (LOGPROBS[0], LOGPROBS[2])
    lengths = np.array([len(sequence) for sequence in logprobs[0]], np.int64)
    columns = {n: np.array([x for row in rows for x in row], dtype) for n, rows in zip(names, logprobs, strict=True)}
    return RaggedBatch.from_positions(lengths, columns, {})


@dataclass
class Expected:
    """A sequence's figures of one gap, its valid tokens, and the positions with the largest |d|."""

    tokens: int
    abs_log_ratio_max: float
    log_geometric_ratio: float
    k3_share: float
    worst: list[int]


def expected(data: RaggedBatch, gap: str) -> dict[int, Expected]:
    """By index, of the sequences that have a valid token."""
    above, below = (data.columns[name].astype(np.float64) for name in GAP_LOGPROBS[gap])
    starts = np.concatenate([[0], np.cumsum(data.lengths)])
    found = {}
    for index in range(data.sequences):
        pairs = []
        for token in range(data.offsets[index], data.offsets[index + 1]):
            d = above[token] - below[token]
            position = token if data.positions is None else int(data.positions[token])
            if math.isfinite(d):
                pairs.append((position - int(starts[index]), d))
        if pairs:
            ratios = [d for _, d in pairs]
            furthest = max(map(abs, ratios))
            found[index] = Expected(
                len(pairs),
                furthest,
                math.fsum(ratios) / len(pairs),
                math.fsum(math.expm1(d) - d for d in ratios),
                [position for position, d in pairs if abs(d) > furthest * (1 - 1e-6)],
            )
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("block_tokens", [1 << 18, 200])
def test_each_ranking_is_that_of_a_loop_over_the_sequences(seed: int, block_tokens: int) -> None:
    data = batch(seed, per_token=False)
    worst = measured(data, shard=3, block_tokens=block_tokens)
    for gap, by in RANKINGS:
        wanted = expected(data, gap)
        order = sorted(wanted, key=lambda index: -abs(getattr(wanted[index], by)))[:MOST]
        found = ranked(one_by_one(worst), (gap, by))
        assert [sequence.index for sequence in found] == order, (gap, by)
    ranks = {s.index for ranking in RANKINGS for s in ranked(one_by_one(worst), ranking)}
    assert [sequence.index for sequence in one_by_one(worst)] == sorted(ranks)


@pytest.mark.parametrize("seed", range(4))
def test_each_sequence_has_its_figures_and_worst_tokens_of_every_gap(seed: int) -> None:
    data = batch(seed, per_token=True)
    starts = np.concatenate([[0], np.cumsum(data.lengths)])
    wanted = {gap: expected(data, gap) for gap in GAPS}
    for sequence in one_by_one(measured(data, shard=3)):
        assert sequence.shard == 3
        assert sequence.tokens == data.offsets[sequence.index + 1] - data.offsets[sequence.index]
        assert set(sequence.gaps) == {gap for gap in GAPS if sequence.index in wanted[gap]}
        for gap, figures in sequence.gaps.items():
            loop = wanted[gap][sequence.index]
            assert figures.tokens == loop.tokens
            assert figures.log_geometric_ratio == pytest.approx(loop.log_geometric_ratio, rel=1e-5, abs=1e-6), gap
            assert figures.k3 == pytest.approx(loop.k3_share, rel=1e-5, abs=1e-6), gap
            assert sequence.furthest(gap) == pytest.approx(loop.abs_log_ratio_max, rel=1e-5, abs=1e-6), gap
            assert any(position.position in loop.worst for position in sequence.positions)
        for position in sequence.positions:
            assert data.positions is not None
            token = int(np.searchsorted(data.positions, starts[sequence.index] + position.position))
            sent = [float(data.columns[name][token]) for name in LOGPROBS]
            assert position.logprobs == tuple(value if math.isfinite(value) else None for value in sent)


@given(seed=st.integers(0, 2**31), cuts=st.lists(st.integers(0, 40), max_size=4), data=st.data())
def test_shards_merge_in_any_order_to_the_worst_of_all_their_sequences(
    seed: int, cuts: list[int], data: st.DataObject
) -> None:
    edges = [0, *sorted(cuts), 40]
    whole = batch(seed, per_token=False)
    parts = [cut(whole, first, last) for first, last in pairwise(edges)]
    shards = [measured(part, shard, keep=1) for shard, part in enumerate(parts)]
    merged = reduce(Worst.merge, data.draw(st.permutations(shards)), Worst())
    once = measured(whole, keep=1)
    shard_of = [shard for shard, part in enumerate(parts) for _ in range(part.sequences)]
    moved = [replace(s, shard=shard_of[s.index], index=s.index - edges[shard_of[s.index]]) for s in one_by_one(once)]
    assert one_by_one(merged) == moved


def cut(data: RaggedBatch, first: int, last: int) -> RaggedBatch:
    """Sequences first..last (exclusive) as a batch of their own."""
    tokens = slice(int(data.offsets[first]), int(data.offsets[last]))
    before = int(data.lengths[:first].sum())
    return RaggedBatch(
        data.offsets[first : last + 1] - data.offsets[first],
        {n: c[tokens] if n in data.per_token else c[first:last] for n, c in data.columns.items()},
        data.lengths[first:last],
        None if data.positions is None else data.positions[tokens] - before,
        data.per_token,
    )


@given(st.lists(st.integers(0, 12), min_size=1, max_size=60), st.lists(st.integers(0, 3), min_size=60, max_size=60))
def test_merging_is_associative_and_commutative_with_many_equal_values(moves: list[int], shards: list[int]) -> None:
    rows = [[0.0, move / 8] for move in moves]
    zeros = [[-20.0, -20.0] for _ in moves]
    new = [[-20.0 + d for d in row] for row in rows]
    whole = measured(plain(zeros, new), keep=2)
    spread = [replace(s, shard=shards[s.index]) for s in one_by_one(whole)]
    a, b, c = (in_columns(*worst_of(s for s in spread if s.index % 3 == part)) for part in range(3))
    assert a.merge(b).merge(c) == a.merge(b.merge(c)) == c.merge(b).merge(a)


def test_of_equal_sequences_the_lower_shard_and_then_the_lower_index_come_first() -> None:
    data = plain([[-1.0, -2.0]] * 8, [[-1.5, -2.0]] * 8)
    assert [s.index for s in one_by_one(measured(data))] == list(range(MOST))
    merged = measured(data, shard=2).merge(measured(data, shard=1))
    assert [(s.shard, s.index) for s in one_by_one(merged)] == [(1, index) for index in range(MOST)]
    some = plain([[-1.0, -2.0]] * 3, [[-1.5, -2.0]] * 3)
    merged = measured(data, shard=2).merge(measured(some, shard=1))
    assert [(s.shard, s.index) for s in one_by_one(merged)] == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]


@pytest.mark.parametrize("more", [0, FEW])
def test_the_largest_of_equal_values_are_the_first(more: int) -> None:
    def furthest(values: list[float], number: int) -> list[int]:
        found, there = first_of_each(np.array([values + [0] * more], np.float32), number)
        return [int(index) for index in found[there]]

    assert furthest([1, 3, 3, 2, 3], 2) == [1, 2]
    assert furthest([1, 3, 3, 2, 3], 4) == [1, 2, 4, 3]
    assert furthest([0, 1, 0, 0, 0], 5) == [1]
    assert furthest([0, 0, 0, 0], 2) == []


def test_each_ranking_has_its_own_first() -> None:
    found, there = first_of_each(np.array([[0, 2, 1, 2], [0, 0, 0, 0], [4, 3, 5, 0]], np.float32), 2)
    assert (found[[0, 2]].tolist(), there.tolist()) == ([[1, 3], [2, 0]], [[True] * 2, [False] * 2, [True] * 2])


def test_sequences_that_are_equal_empty_or_without_a_finite_token_are_in_no_ranking() -> None:
    nan = math.nan
    sampling = [[-1.0, -1.0], [], [nan, -2.0], [-1.0], [-0.5]]
    new = [[-1.0, -1.0], [], [-2.0, nan], [-2.0], [-math.inf]]
    [one] = one_by_one(measured(plain(sampling, new)))
    assert (one.index, one.tokens, set(one.gaps)) == (3, 1, {"total"})
    assert one.positions[0].logprobs == (-1.0, None, -2.0)
    assert measured(plain([[]], [[]])) == Worst() == measured(plain([[-1.0]], [[-1.0]]))


def test_where_one_log_prob_is_not_finite_the_other_gap_still_has_its_figures() -> None:
    [worst] = one_by_one(measured(plain([[-1.0, -1.0]], [[math.nan, -1.5]], [[-3.0, -1.5]])))
    assert {gap: figures.tokens for gap, figures in worst.gaps.items()} == {"mismatch": 1, "staleness": 1, "total": 2}
    assert worst.furthest("total") == 2.0
    assert [p.position for p in worst.positions] == [0, 1]
    assert worst.positions[0].logprobs == (-1.0, None, -3.0)


def test_float64_log_probs_are_kept_whole_and_figures_beyond_float32_at_its_end() -> None:
    fine = plain([[-1.0 - 1e-12]], [[-2.0]], dtype=np.float64)
    assert one_by_one(measured(fine))[0].positions[0].logprobs[0] == -1.0 - 1e-12
    [far] = one_by_one(measured(plain([[-1.0]], [[-1e200]], dtype=np.float64)))
    assert far.furthest("total") == float(np.finfo(np.float32).max) == -far.gaps["total"].log_geometric_ratio


def test_the_first_of_each_ranking_keep_their_raw_tokens_and_lose_them_with_their_places() -> None:
    data = plain([[-1.0, -1.0], [-1.0, math.nan], [-1.0, -1.0]], [[-2.0, -1.0], [-4.0, -1.0], [-3.0, -1.0]])
    worst = measured(data, keep=1)
    assert [s.columns is not None for s in one_by_one(worst)] == [False, True, False]
    [kept] = [s.columns for s in one_by_one(worst) if s.columns is not None]
    assert [(token.position, token.logprobs) for token in kept.tokens] == [
        (0, (-1.0, None, -4.0)),
        (1, (None, None, -1.0)),
    ]
    further = measured(plain([[-1.0, -1.0]], [[-9.0, -1.0]]), shard=1, keep=1)
    merged = worst.merge(further)
    assert [(s.shard, s.columns is not None) for s in one_by_one(merged)] == [(0, False)] * 3 + [(1, True)]
    assert [s.columns for s in one_by_one(measured(data))] == [None] * 3


def test_of_a_long_sequence_the_raw_tokens_around_its_worst_are_kept() -> None:
    sampling = np.full(10_000, -1.0, np.float32)
    for position, first in ((0, 0), (5000, 5000 - MOST_TOKENS // 2), (9999, 10_000 - MOST_TOKENS)):
        new = sampling.copy()
        new[position] = -3.0
        columns = {"sampling_logprobs": sampling, "logprobs": new}
        data = RaggedBatch.from_positions(np.array([0, 10_000]), columns, {})
        [sequence] = one_by_one(measured(data, keep=1))
        assert sequence.columns is not None
        assert [t.position for t in sequence.columns.tokens] == list(range(first, first + MOST_TOKENS))
        assert [p.position for p in sequence.positions] == [position]


def test_ids_travel_with_their_sequences() -> None:
    data = plain([[-1.0], [-1.0], [-1.0]], [[-1.0], [-4.0], [-3.0]])
    named = replace(data, sequence_ids=("p0", "p1", "p2"))
    assert [(s.index, s.id) for s in one_by_one(measured(named))] == [(1, "p1"), (2, "p2")]
    assert {s.id for s in one_by_one(measured(data))} == {None}


def test_evaluation_looks_for_no_worst_sequences_and_gaps_are_those_of_the_measurer() -> None:
    assert {gap: (LOGPROBS[a], LOGPROBS[b]) for gap, (a, b) in GAPS.items()} == GAP_LOGPROBS
    answer = Measurer("cpu").evaluate(plain([[-1.0]], [[-2.0]]), ())
    assert "worst" not in answer
