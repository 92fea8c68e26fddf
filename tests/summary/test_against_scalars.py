"""Figures by formulas over arrays are those of plain arithmetic, one number at a time: to the bit but for length bias.

The sums of a length bias over bins are added in numpy's order, so that they agree within rounding.
"""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.summary import StepSummary, from_bytes, merge_all

from tests.reference import Sequence
from tests.strategies import packed, random_sequences, sequences
from tests.summary import scalar
from tests.summary.full import FULL, OTHER, any_measurer

STORED = sorted(Path(__file__).parent.glob("stored_v*.bin"))


def assert_scalars(summary: StepSummary) -> None:
    (biases, found), (biases_by_hand, expected) = map(_apart, (summary.figures(), scalar.figures(summary)))
    assert found == expected
    assert biases.keys() == biases_by_hand.keys()
    for name, bias in biases.items():
        by_hand = biases_by_hand[name]
        assert bias.keys() == by_hand.keys()
        assert all(_nearly(bias[part], by_hand[part]) for part in bias), (name, bias, by_hand)


def _apart(figures: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The length biases of rows by their names, and the figures without them."""
    rows = figures["methods"].items()
    others = {name: {part: value for part, value in row.items() if part != "length_bias"} for name, row in rows}
    return {name: row["length_bias"] for name, row in rows if "length_bias" in row}, {**figures, "methods": others}


def _nearly(one: Any, other: Any) -> bool:
    """The same, within rounding where both are numbers with a fraction."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return bool(one == other)


@settings(max_examples=200, deadline=None)
@given(sequences())
def test_any_batch_has_the_figures_of_plain_arithmetic(sent: list[Sequence]) -> None:
    assert_scalars(any_measurer().measure(packed(sent), PRESETS))


@settings(max_examples=100, deadline=None)
@given(sequences(), sequences())
def test_any_merge_has_the_figures_of_plain_arithmetic(one: list[Sequence], other: list[Sequence]) -> None:
    assert_scalars(merge_all(any_measurer().measure(packed(sent), PRESETS) for sent in (one, other)))


@pytest.mark.parametrize("noise", [0.0, 1e-4, 0.05, 3.0])
def test_batches_of_a_language_models_shape_have_the_figures_of_plain_arithmetic(noise: float) -> None:
    one, other = (
        any_measurer().measure(packed(random_sequences(seed, [5, 40, 300, 1], noise)), PRESETS) for seed in (1, 2)
    )
    for summary in (one, merge_all([one, other]), FULL, FULL.merge(OTHER), FULL.merge(one)):
        assert_scalars(summary)


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_what_older_releases_stored_has_the_figures_of_plain_arithmetic(path: Path) -> None:
    summary = from_bytes(path.read_bytes())
    for found in (summary, merge_all([summary, FULL]), merge_all([summary] * 3)):
        assert_scalars(found)
