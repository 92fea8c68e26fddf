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
from offpolicy_monitor.methods import PRESETS, MethodRow
from offpolicy_monitor.slices import finished
from offpolicy_monitor.summary.evaluation import Detail, Evaluation

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


def assert_close(got: Any, expected: Any, where: str = "") -> None:
    """The same names in the same order, whole numbers the same, others nearly."""
    if isinstance(expected, dict):
        assert list(got) == list(expected), where
        for name, value in expected.items():
            assert_close(got[name], value, f"{where}/{name}")
    elif isinstance(expected, list):
        assert len(got) == len(expected), where
        for index, value in enumerate(expected):
            assert_close(got[index], value, f"{where}/{index}")
    elif isinstance(expected, float):
        assert math.isclose(got, expected, rel_tol=1e-5, abs_tol=1e-6), f"{where}: {got}, torch says {expected}"
    else:
        assert got == expected, f"{where}: {got}, torch says {expected}"


def assert_same(batch: RaggedBatch, rows: Any = ROWS, detail: Detail = "token") -> Evaluation:
    got, expected = by_both(batch, rows, detail)
    assert_close(got.answer(), expected.answer())
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
    assert_close(cut.answer(), whole.answer())


def slices(batch: RaggedBatch, rows: tuple[MethodRow, ...]) -> Any:
    found = loaded_pass().evaluation(batch, rows, "sequence", ORIGIN, lambda arrays: arrays)
    assert found is not None
    return found


def test_a_measurer_whose_pass_cannot_take_a_batch_evaluates_it_by_torch() -> None:
    measurer = Measurer("cpu")
    measurer.use(loaded_pass())
    wide = packed(random_sequences(2, [30, 5], 0.2), np.float64)
    assert measurer.evaluate(wide, PRESETS) == Measurer("cpu").evaluate(wide, PRESETS)
