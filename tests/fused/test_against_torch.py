"""The fused pass makes the summary that torch makes, of every kind of batch that a trainer may send."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offpolicy_monitor.batch import UNKNOWN_ORIGIN, Origin, RaggedBatch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.measure.fused import Fused
from offpolicy_monitor.methods import PRESETS, parse_rows
from offpolicy_monitor.summary.step import StepSummary

from tests.fixtures.fused import loaded_pass
from tests.fused.agreement import assert_same
from tests.measure.rows import ROWS
from tests.reference import COLUMNS, Sequence
from tests.strategies import packed, random_sequences, sequences

KEPT = 2
ORIGIN = Origin(5, 3, {"engine": "a/b"})


def both(batch: RaggedBatch, origin: Origin = ORIGIN) -> tuple[RaggedBatch, StepSummary, StepSummary]:
    got = loaded_pass()(batch, ROWS, origin, KEPT)
    assert got is not None
    return batch, got, Measurer("cpu", keep_worst=KEPT).measure(batch, ROWS, origin)


def with_more(sent: list[Sequence], extra: dict[str, np.ndarray], per_token: bool) -> RaggedBatch:
    """The batch with columns of the positions, or of the sequences."""
    batch = packed(sent)
    if per_token:
        extra = {name: values if batch.positions is None else values[batch.positions] for name, values in extra.items()}
    names = batch.per_token | (set(extra) if per_token else set())
    return RaggedBatch(
        batch.offsets, {**batch.columns, **extra}, batch.lengths, batch.positions, frozenset(names), dtypes=batch.dtypes
    )


@settings(max_examples=150)
@given(
    sent=sequences(), more=st.sampled_from(["", "token", "sequence"]), known=st.booleans(), seed=st.integers(0, 1000)
)
def test_any_batch_with_or_without_versions_turns_entropy_and_rewards(
    sent: list[Sequence], more: str, known: bool, seed: int
) -> None:
    random, of_tokens = np.random.default_rng(seed), more == "token"
    number = sum(len(one.mask) for one in sent) if of_tokens else len(sent)
    extra: dict[str, Any] = {
        "policy_versions": random.integers(-1, 8, number), "turns": random.integers(-1, 20, number),
        "entropy" if of_tokens else "rewards": np.where(random.random(number) < 0.1, np.nan, random.random(number)),
    }  # fmt: skip
    batch = with_more(sent, extra, of_tokens) if more else packed(sent)
    assert_same(*both(batch, Origin(5 if known else None, 0, ORIGIN.labels)))


@pytest.mark.parametrize("seed", [61, 70, 88, 98, 140])
def test_sums_of_equal_terms(seed: int) -> None:
    """Each is rounded the same way: with too many of them one after the other in float32, these were off by 1e-6."""
    random = np.random.default_rng(seed)
    tokens = int(random.choice([512, 1024, 4096]))
    mu = np.full(tokens, np.float32(-0.01 - 8 * random.random()))
    moves = np.exp(random.uniform(-8, [2.5, 1.0])) * random.choice([-1, 1], 2)
    old = np.minimum(mu - np.float32(moves[0]), np.float32(0))
    logprobs = np.minimum(old - np.float32(moves[1]), np.float32(0))
    advantages = np.full(tokens, np.float32(random.normal()))
    sent = {"sampling_logprobs": mu, "old_logprobs": old, "logprobs": logprobs, "advantages": advantages}
    assert_same(*both(RaggedBatch.from_positions(np.array([tokens]), sent, {})))


@pytest.mark.parametrize("least", [-(2.0**-126), -1.2e-38, -5e-38, -1e-37, -1e-30])
def test_log_probs_as_near_0_as_float32_has_them(least: float) -> None:
    """The larger KL of -2 and of such a log-prob is 50 to 75, and grows to the last of them."""
    mu, logprobs = np.array([[-2, least, -1e-3, least], [least, -2, least, least]], np.float32)
    batch = RaggedBatch.from_positions(np.array([4]), {"sampling_logprobs": mu, "logprobs": logprobs}, {})
    rows = parse_rows([{"name": f"phi {phi}", "method": "kpop", "phi": phi} for phi in range(50, 80)])
    got, expected = loaded_pass()(batch, rows, ORIGIN, KEPT), Measurer("cpu").measure(batch, rows, ORIGIN)
    assert got is not None
    assert {name: row.sums["masked_tokens"] for name, row in got.methods.items()} == {
        name: row.sums["masked_tokens"] for name, row in expected.methods.items()
    }


def test_log_probs_that_are_equal_and_those_that_are_almost() -> None:
    equal, tiny, tinier = [-0.5, -2.0, 0.0, -1e-18], [-1e-18, -1e-12, -1e-7, -1e-30], [-3.88e-12] * 4
    for sent, least in ((equal, 0.0), (tiny, 1e-19), (tinier, 1e-19)):
        logprobs = {"old_logprobs": sent, "logprobs": equal if sent is equal else [0.0] * 4}
        batch, got, expected = both(packed([Sequence(logprobs=logprobs, mask=[1] * 4, advantage=None)]))
        assert_same(batch, got, expected)
        assert (got.gaps["staleness"].sums["probability_diff"] > least) is (sent is not equal)


@pytest.mark.parametrize("noise", [1e-5, 0.03, 0.3, 2.0])
@pytest.mark.parametrize("names", [COLUMNS, COLUMNS[:2], COLUMNS[1:], (COLUMNS[0], COLUMNS[2])])
def test_long_sequences(noise: float, names: tuple[str, ...]) -> None:
    sent = random_sequences(7, [1, 700, 2, 40, 1300, 0, 511, 512, 513], noise, names=names)
    assert_same(*both(packed(sent), UNKNOWN_ORIGIN))


@pytest.mark.parametrize("beyond", [-2e-6, 2e-6])
@pytest.mark.parametrize("seed", range(8))
def test_a_long_sequence_close_to_a_threshold_is_decided_by_the_exact_sum_of_its_differences(
    seed: int, beyond: float
) -> None:
    random, tokens, wanted = np.random.default_rng(seed), 16_000, math.log(2) + beyond
    sampling = -1 - random.standard_exponential(tokens, np.float32)
    old = sampling + random.standard_normal(tokens, np.float32)
    finest = int(np.argmin(np.abs(old) + np.abs(sampling)))
    for _ in range(40):
        off = math.fsum((old - sampling).tolist()) - wanted  # differences are float32 in either form
        old[slice(None) if abs(off) > 1 else finest] -= np.float32(off / tokens if abs(off) > 1 else off)
    assert abs(math.fsum((old - sampling).tolist()) - wanted) < 1e-6
    batch = RaggedBatch.from_positions(np.array([tokens]), {"sampling_logprobs": sampling, "old_logprobs": old}, {})
    got = loaded_pass()(batch, PRESETS, UNKNOWN_ORIGIN, None)
    assert got is not None
    for summary in (got, Measurer("cpu").measure(batch, PRESETS)):
        assert summary.methods["mis_sequence"].sums["masked_tokens"] == (tokens if beyond > 0 else 0)


def test_holes_in_one_array_leave_the_gap_of_the_others_whole() -> None:
    sent = random_sequences(5, [30, 600, 5], 0.1)
    sent[1].logprobs["sampling_logprobs"][::7] = [float("nan")] * len(sent[1].mask[::7])
    sent[2].logprobs["logprobs"][:] = [float("-inf")] * 5
    _, got, expected = both(packed(sent))
    assert_same(packed(sent), got, expected)
    assert got.gaps["staleness"].sums["tokens"] == 630


def test_probabilities_that_float32_does_not_hold() -> None:
    sent = random_sequences(5, [40], 0.3)
    for values in sent[0].logprobs.values():
        values[:] = [value - 110.0 for value in values]
    assert_same(*both(packed(sent)))


@pytest.mark.parametrize("advantage", [-1.5, 0.0, 2.0])
def test_one_advantage_per_token_that_never_changes_gives_what_one_per_sequence_does(advantage: float) -> None:
    of_sequences = random_sequences(3, [60, 700], 0.2)
    for one in of_sequences:
        object.__setattr__(one, "advantage", advantage)
    of_tokens = [Sequence(one.logprobs, one.mask, [advantage] * len(one.mask)) for one in of_sequences]
    assert_same(*both(packed(of_tokens)))
    first, second = (loaded_pass()(packed(sent), ROWS, ORIGIN, KEPT) for sent in (of_sequences, of_tokens))
    assert first is not None and second is not None
    name = "histograms/total/log_ratio"
    assert (first.arrays[name] == second.arrays[name]).all()
    assert first.methods["grpo"].sums["masked_tokens"] == second.methods["grpo"].sums["masked_tokens"]


def test_rounded_log_probs_leave_their_grids_unless_they_came_rounded(fused: Fused) -> None:
    sent = random_sequences(3, [400], 0.01)
    for values in sent[0].logprobs.values():
        values[:] = [float(np.float16(value)) for value in values]
    batch = packed(sent)
    assert_same(*both(batch))
    coarse = RaggedBatch(
        batch.offsets, batch.columns, batch.lengths, None, batch.per_token, dtypes={"logprobs": "bfloat16"}
    )
    _, got, expected = both(coarse)
    assert_same(coarse, got, expected)
    assert not list(got.arrays.under("signature/grid"))
