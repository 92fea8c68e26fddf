"""Measurer.evaluate answers what the float64 oracle says, on batches of every shape, cut into blocks of any size."""

import json
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import MethodRow

from tests import reference
from tests.agreement import assert_gap_agrees, assert_method_agrees, largest_log_ratio
from tests.measure.rows import ROWS
from tests.reference import COLUMNS, Sequence, gaps_of
from tests.reference_methods import SIGNED, outcome
from tests.strategies import packed, random_sequences, sequences

BLOCKS_OF_THREE = 3


def evaluated(
    sent: list[Sequence], dtype: type[np.floating] = np.float32, block_tokens: int = 1 << 17
) -> dict[str, Any]:
    measurer = Measurer("cpu")
    measurer.block_tokens = block_tokens
    answer = measurer.evaluate(packed(sent, dtype), ROWS, "token")
    json.dumps(answer, allow_nan=False)
    return answer


def expected_rows(sent: list[Sequence]) -> list[MethodRow]:
    gaps, with_advantages = gaps_of(sent), bool(sent) and sent[0].advantage is not None
    return [row for row in ROWS if row.gap in gaps and (with_advantages or row.method.name not in SIGNED)]


def assert_agrees(answer: dict[str, Any], sent: list[Sequence]) -> None:
    for name, value in reference.batch_counts(sent).items():
        assert answer[name] == value, name
    assert list(answer["gaps"]) == gaps_of(sent)
    for gap in gaps_of(sent):
        assert_gap_agrees(answer["gaps"][gap], sent, gap)
    rows, largest = expected_rows(sent), cache(partial(largest_log_ratio, sent))
    assert [method["name"] for method in answer["methods"]] == [row.name for row in rows]
    for row, got in zip(rows, answer["methods"], strict=True):
        wanted = outcome(sent, row.spec)
        assert wanted is not None
        assert_method_agrees(got, wanted, largest(row.gap, row.level == "sequence"))


@settings(max_examples=120)
@given(sent=sequences())
def test_any_batch_gets_the_oracles_figures(sent: list[Sequence]) -> None:
    assert_agrees(evaluated(sent), sent)


@settings(max_examples=60)
@given(sent=sequences())
def test_blocks_of_three_tokens_give_the_oracles_figures(sent: list[Sequence]) -> None:
    assert_agrees(evaluated(sent, block_tokens=BLOCKS_OF_THREE), sent)


@settings(max_examples=40)
@given(sent=sequences())
def test_float64_input_gets_the_oracles_figures(sent: list[Sequence]) -> None:
    assert_agrees(evaluated(sent, np.float64), sent)


@pytest.mark.parametrize("noise", [1e-5, 1e-3, 0.03, 0.3, 2.0])
def test_batches_of_a_language_models_shape_get_the_oracles_figures(noise: float) -> None:
    sent = random_sequences(7, [1, 75, 2, 20, 150, 0, 17], noise, drift=noise / 5)
    assert_agrees(evaluated(sent, block_tokens=128), sent)


@pytest.mark.parametrize("drift", [-0.05, 0.05])
def test_long_sequences_that_drift_get_the_oracles_figures(drift: float) -> None:
    sent = random_sequences(3, [400, 200, 10], 0.01, drift)
    assert_agrees(evaluated(sent), sent)


@pytest.mark.parametrize("names", [COLUMNS[:2], COLUMNS[1:], (COLUMNS[0], COLUMNS[2])])
def test_two_arrays_give_one_gap_and_no_other(names: tuple[str, ...]) -> None:
    sent = random_sequences(5, [20, 30], 0.1, names=names)
    answer = evaluated(sent)
    assert len(answer["gaps"]) == 1
    assert answer["attribution"] is None
    assert_agrees(answer, sent)


def test_per_sequence_figures_are_the_oracles_and_null_where_a_sequence_is_empty() -> None:
    sent = random_sequences(2, [5, 0, 9], 0.2)
    sent.append(Sequence({name: [float("nan")] * 2 for name in COLUMNS}, [1, 1], 1.0))
    rows = Measurer("cpu").evaluate(packed(sent), ROWS, "sequence")["per_sequence"]
    assert [row["tokens"] for row in rows] == [5, 0, 9, 2]
    for index, row in enumerate(rows):
        for gap, got in row["gaps"].items():
            d = [token.d for token in reference.valid_tokens(sent, gap)[index]]
            if not d:
                names = ("log_geometric_ratio", "log_product_ratio", "abs_log_ratio_max", "k1", "k3")
                assert got == dict.fromkeys(names)
                continue
            assert got["log_geometric_ratio"] == pytest.approx(reference.mean(d), rel=1e-6, abs=1e-7)
            assert got["log_product_ratio"] == pytest.approx(sum(d), rel=1e-6, abs=1e-6)
            assert got["abs_log_ratio_max"] == pytest.approx(max(map(abs, d)), rel=1e-6)
            assert got["k1"] == -got["log_geometric_ratio"]
            assert got["k3"] == pytest.approx(reference.mean(map(reference.k3, d)), rel=1e-5)


def test_keep_and_weights_stand_at_the_positions_as_sent() -> None:
    sent = [
        Sequence({"sampling_logprobs": [-1.0, -1.0, -9.0], "old_logprobs": [-1.0, -3.0, -1.0]}, [1, 0, 1]),
        Sequence({"sampling_logprobs": [], "old_logprobs": []}, []),
        Sequence({"sampling_logprobs": [-2.0], "old_logprobs": [-1.5]}, [1]),
    ]
    tis, mis = Measurer("cpu").evaluate(packed(sent), [ROWS[0], ROWS[2]], "token")["methods"]
    assert [tis["name"], mis["name"]] == ["tis_token", "mis_token"]
    assert tis["keep_tokens"] == [[1, 0, 1], [], [1]]
    assert mis["keep_tokens"] == [[1, 0, 0], [], [1]]
    assert mis["keep_sequences"] == [1, 0, 1]
    assert "weights" not in mis
    assert tis["weights"][0] == [1.0, 0.0, 2.0] and tis["weights"][1] == []
    assert tis["weights"][2] == pytest.approx([1.6487212707001282], rel=1e-7)
