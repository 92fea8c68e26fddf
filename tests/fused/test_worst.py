"""Compiled code keeps the same tokens of the worst sequences as the definition."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.fused import worst as compiled
from offpolicy_monitor.measure import worst as defined
from offpolicy_monitor.summary.tables.worst import MOST, MOST_TOKENS, Ranked, Tokens
from offpolicy_monitor.vocabulary import GAP_LOGPROBS, LOGPROBS


def columns(tokens: int, seed: int, names: tuple[str, ...] = LOGPROBS) -> dict[str, np.ndarray]:
    """Log-probs of few values, so that many differ by as much, or by nothing."""
    random = np.random.default_rng(seed)
    return {name: -random.integers(0, 6, tokens).astype(np.float32) / 4 for name in names}


def ranking_of(batch: RaggedBatch, gaps: Sequence[str]) -> np.ndarray:
    """[4, 3, S] of tokens whose d is finite."""
    found = np.zeros((4, 3, batch.sequences))
    for gap in gaps:
        above, below = (batch.columns[name].astype(np.float64) for name in GAP_LOGPROBS[gap])
        with np.errstate(invalid="ignore"):
            apart = above - below
        for s, (begin, end) in enumerate(pairwise(batch.offsets.tolist())):
            d = apart[begin:end][np.isfinite(apart[begin:end])]
            figures = (len(d), np.abs(d).max(initial=0), d.mean() if len(d) else np.nan, (np.expm1(d) - d).sum())
            found[:, list(GAP_LOGPROBS).index(gap), s] = figures
    return found


def assert_the_same(batch: RaggedBatch, keep: int = 2) -> tuple[Ranked, Tokens]:
    gaps = [gap for gap, pair in GAP_LOGPROBS.items() if batch.columns.keys() >= set(pair)]
    mu, old, pi = (batch.columns.get(name, np.zeros(0, np.float32)) for name in LOGPROBS)
    ranking = ranking_of(batch, gaps)
    ranked, tokens = compiled.worst(batch, (mu, old, pi), gaps, ranking, keep)
    sent = ranking[:, [list(GAP_LOGPROBS).index(gap) for gap in gaps]]
    wanted = defined.ranked_by(batch, gaps, sent[..., np.diff(batch.offsets) > 0], keep)
    if not len(ranked.sequences):
        assert not len(wanted.sequences)
        return ranked, tokens
    others = defined.tokens_of(batch, gaps, wanted.sequences, wanted.kept)
    pairs = [*zip(ranked, wanted, strict=True), (tokens.spans, others.spans)]
    for own, other in zip(tokens[:2], others[:2], strict=True):
        pairs += zip(own, other, strict=True)
    for array, expected in pairs:
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)
    return ranked, tokens


@pytest.mark.parametrize("names", [LOGPROBS, LOGPROBS[:2], (LOGPROBS[0], LOGPROBS[2])])
@pytest.mark.parametrize("seed", range(6))
def test_tokens_are_those_of_the_definition(seed: int, names: tuple[str, ...]) -> None:
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 40, 40)
    batch = RaggedBatch.from_positions(lengths, columns(int(lengths.sum()), seed, names), {})
    for keep in (0, 1, 3, MOST + 1):
        assert_the_same(batch, keep)


def test_what_is_not_finite_is_no_furthest_token_and_is_kept_as_nothing() -> None:
    of = columns(40, 1)
    of["logprobs"][3], of["old_logprobs"][25], of["sampling_logprobs"][39] = np.nan, -np.inf, np.inf
    _, tokens = assert_the_same(RaggedBatch.from_positions(np.array([20, 20]), of, {}))
    assert np.isnan(tokens.raw.logprobs).sum() == 3


def test_positions_are_those_as_sent_where_some_are_masked() -> None:
    random = np.random.default_rng(3)
    lengths = np.array([30, 50, 20])
    mask = random.random(100) < 0.6
    of = columns(100, 3)
    batch = RaggedBatch.from_positions(lengths, of, {}, mask=mask)
    ranked, tokens = assert_the_same(batch)
    assert ranked.kept.tolist() == [0, 1, 2]
    apart = [np.flatnonzero(part) for part in np.split(mask, [30, 80])]
    assert tokens.raw.positions.tolist() == np.concatenate(apart).tolist()


@pytest.mark.parametrize("token", [0, 100, 6000, 9999])
def test_of_a_long_sequence_those_around_its_worst_token_are_kept(token: int) -> None:
    of = {name: np.full(10_050, -1, np.float32) for name in LOGPROBS}
    of["logprobs"][50 + token] = -9.0
    batch = RaggedBatch.from_positions(np.array([50, 10_000]), of, {})
    _, tokens = assert_the_same(batch)
    assert len(tokens.raw.positions) == MOST_TOKENS and token in tokens.raw.positions
    assert tokens.furthest.positions.tolist() == [token]


def test_a_sequence_whose_policies_agree_is_not_chosen() -> None:
    of = {name: np.full(20, -1, np.float32) for name in LOGPROBS}
    assert len(assert_the_same(RaggedBatch.from_positions(np.array([10, 10]), of, {}))[0].sequences) == 0
    of["logprobs"][15] = -2.0
    ranked, tokens = assert_the_same(RaggedBatch.from_positions(np.array([10, 10]), of, {}))
    assert ranked.sequences.tolist() == [1] and tokens.furthest.positions.tolist() == [5]
