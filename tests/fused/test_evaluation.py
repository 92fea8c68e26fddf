"""What the fused pass answers to /v1/evaluate is what torch answers."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.fused import evaluate, measured
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS, MethodRow, parse_rows
from offpolicy_monitor.slices import finished
from offpolicy_monitor.summary.evaluation import Detail, Evaluation
from offpolicy_monitor.vocabulary import LOGPROBS

from tests.fixtures.fused import loaded_pass
from tests.measure.rows import ROWS
from tests.reference import Sequence
from tests.strategies import packed, random_sequences, sequences

ORIGIN = Origin(5, 3, {"engine": "a/b"})
DETAILS: tuple[Detail, ...] = ("none", "sequence", "token")


def by_both(batch: RaggedBatch, rows: Any, detail: Detail) -> tuple[Evaluation, Evaluation]:
    measurer = Measurer("cpu")
    expected = finished(measurer.evaluation(batch, rows, detail, ORIGIN))
    measurer.use(loaded_pass())
    return finished(measurer.evaluation(batch, rows, detail, ORIGIN)), expected


def rounding_of_correlations(batch: RaggedBatch) -> float:
    """What rounding of p to float32 may move a correlation of probabilities by, where these are hardly apart."""
    sent = np.array([batch.columns[name] for name in LOGPROBS if name in batch.columns], float)
    apart = [p.std() for p in np.exp(sent[:, np.isfinite(sent).all(0)].clip(max=0)) if len(p) > 1 and p.std() > 0]
    return float(2.0**-23 / min(apart, default=1.0))


def assert_close(got: Any, expected: Any, of_correlations: float, where: str = "", size: float = 0.0) -> None:
    """The same names in order, whole numbers the same, others nearly: a spread to a part of its mean, of this size."""
    if isinstance(expected, dict):
        assert list(got) == list(expected), where
        for name, value in expected.items():
            mean = expected.get(f"{name.removesuffix('_std')}_mean") if name.endswith("_std") else None
            assert_close(got[name], value, of_correlations, f"{where}/{name}", abs(mean or 0.0))
    elif isinstance(expected, list):
        assert len(got) == len(expected), where
        for index, value in enumerate(expected):
            assert_close(got[index], value, of_correlations, f"{where}/{index}")
    elif isinstance(expected, float):
        absolute = 1e-6 + 1e-7 * size + (of_correlations if where.endswith("probability_correlation") else 0.0)
        assert math.isclose(got, expected, rel_tol=1e-5, abs_tol=absolute), f"{where}: {got}, torch says {expected}"
    else:
        assert got == expected, f"{where}: {got}, torch says {expected}"


def assert_same(batch: RaggedBatch, rows: Any = ROWS, detail: Detail = "token") -> Evaluation:
    got, expected = by_both(batch, rows, detail)
    assert_close(got.answer(), expected.answer(), rounding_of_correlations(batch))
    return got


@settings(max_examples=60)
@given(sent=sequences(), detail=st.sampled_from(DETAILS))
def test_any_batch(sent: list[Sequence], detail: Detail) -> None:
    assert_same(packed(sent), ROWS, detail)


@pytest.mark.parametrize("detail", DETAILS)
def test_long_sequences_with_holes(detail: Detail) -> None:
    sent = random_sequences(7, [1, 700, 2, 40, 0, 511, 513], 0.3)
    sent[1].logprobs["sampling_logprobs"][::7] = [float("nan")] * len(sent[1].mask[::7])
    assert_same(packed(sent), None, detail)


def test_rows_in_several_lots_come_in_the_order_asked_and_their_names_may_repeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluate, "MOST_ROWS", 5)
    rows = [*reversed(ROWS), *ROWS[:3], *ROWS[:3]]
    got = assert_same(packed(random_sequences(2, [30, 5, 60], 0.2)), rows)
    assert [row["name"] for row in got.methods] == [row.name for row in rows]


def test_rows_that_cut_by_all_tokens_are_few_in_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "MOST_AHEAD_TOKENS", 100)
    cuts = [row for row in ROWS if row.method.name == "m2po"] * 2
    number = sum(1 for _ in slices(packed(random_sequences(2, [30, 30], 0.2)), (*PRESETS, *cuts)))
    assert number >= len(cuts)
    assert_same(packed(random_sequences(2, [30, 30], 0.2)), (*cuts, *PRESETS))


def test_no_rows_have_the_figures_of_the_batch() -> None:
    got = assert_same(packed(random_sequences(2, [30, 5], 0.2)), ())
    assert got.methods == [] and got.figures["tokens"] == 35


def test_a_slice_is_a_chunk_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = packed(random_sequences(2, [100] * 8, 0.2))
    whole = finished(slices(batch, ROWS))
    monkeypatch.setattr(measured, "MOST_CHUNK", 100)
    number, work = 0, slices(batch, ROWS)
    while True:
        try:
            next(work)
        except StopIteration as end:
            cut: Evaluation = end.value
            break
        number += 1
    assert number >= 8
    assert_close(cut.answer(), whole.answer(), 0.0)


def slices(batch: RaggedBatch, rows: tuple[MethodRow, ...]) -> Any:
    found = loaded_pass().evaluation(batch, rows, "sequence", ORIGIN, lambda arrays: arrays)
    assert found is not None
    return found


def test_a_measurer_whose_pass_cannot_take_a_batch_evaluates_it_by_torch() -> None:
    measurer = Measurer("cpu")
    measurer.use(loaded_pass())
    wide = packed(random_sequences(2, [30, 5], 0.2), np.float64)
    assert measurer.evaluate(wide, PRESETS) == Measurer("cpu").evaluate(wide, PRESETS)


def of(*sequences: tuple[list[float], list[float]], dtype: Any = np.float32) -> RaggedBatch:
    """Log-probs of mu and of pi, with advantages of 1."""
    lengths = np.array([len(mu) for mu, _ in sequences])
    columns: dict[str, Any] = {
        name: np.concatenate([sequence[side] for sequence in sequences]).astype(dtype)
        for side, name in enumerate(("sampling_logprobs", "logprobs"))
    }
    return RaggedBatch.from_positions(lengths, columns, {"advantages": np.ones(len(lengths), np.float32)})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("first", [-1.0, 20.0, 40.0, 70.0])
def test_garbage_in_a_sequence_decides_nothing_in_another(first: float, dtype: Any) -> None:
    healthy = [-0.7, -0.6, -0.9, -0.5], [-0.4, -0.3, -0.5, -0.1]
    rows = parse_rows([{"method": "cppo", "delta": 0.5, "budget": 0.01}])
    for found in by_both(of(([first], [-1.0]), healthy, dtype=dtype), rows, "token"):
        assert found.details is not None and found.details[0].keep_tokens is not None
        assert found.details[0].keep_tokens.tolist()[1:] == [1, 1, 1, 0]


@pytest.mark.parametrize(("mu", "pi"), [(90.0, 85.0), (1000.0, 85.0), (81.0, 80.5), (85.0, 90.0)])
def test_probabilities_beyond_the_clamp_are_one(mu: float, pi: float) -> None:
    rows = parse_rows([{"method": "ipo", "threshold": 0.1}, {"method": "dppo", "lower": 0.2, "upper": 0.2}])
    for found in by_both(of(([mu, -1.0], [pi, -1.0])), rows, "none"):
        gap = found.figures["gaps"]["total"]
        assert (gap["probability_diff_max"], gap["probability_diff_mean"]) == (0.0, 0.0)
        assert [method["masked_tokens"] for method in found.methods] == [0, 0]


def test_a_trend_of_what_does_not_vary_but_by_rounding_is_in_neither_form() -> None:
    source, tokens = np.random.default_rng(0), 200
    old = (-np.round(source.exponential(0.7, tokens) * 8) / 8).astype(np.float32)
    experts = np.stack([source.permutation(16)[:12].reshape(3, 4) for _ in range(tokens)]).astype(np.uint8)
    others = np.where(source.random(experts.shape) < 0.1, (experts + 1) % 16, experts).astype(np.uint8)
    for noise, is_there in ((0.0, False), (0.1, True)):
        moved = (old + np.float32(0.01) + source.normal(0, noise, tokens)).astype(np.float32)
        columns: dict[str, Any] = {"old_logprobs": old, "logprobs": moved, "old_experts": experts, "experts": others}
        batch = RaggedBatch.from_positions(np.array([tokens]), columns, {})
        for found in by_both(batch, (), "none"):
            assert ("trend" in found.figures["routing"]["staleness"]) is is_there
