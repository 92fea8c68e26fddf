"""Figures by formulas over arrays are those of plain arithmetic, one number at a time: to the bit but for length bias.

The sums of a length bias over bins are added in numpy's order, so that they agree within rounding.
"""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.summary import StepSummary, from_bytes, merge_all

from tests.reference import Sequence
from tests.strategies import packed, random_sequences, sequences
from tests.summary import scalar
from tests.summary.full import FULL, OTHER

MEASURER = Measurer("cpu")
STORED = sorted(Path(__file__).parent.glob("stored_v*.bin"))


def assert_scalars(summary: StepSummary) -> None:
    found, expected = copy.deepcopy(summary.figures()), scalar.figures(summary)
    for bias, by_hand in zip(_biases(found), _biases(expected), strict=True):
        assert bias == {name: _nearly(value) for name, value in by_hand.items()}
    assert found == expected


def _nearly(value: Any) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-12) if isinstance(value, float) else value


def _biases(figures: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Those of rows, taken out of the figures; in the order of their names."""
    for _, row in sorted(figures["methods"].items()):
        if "length_bias" in row:
            yield row.pop("length_bias")


@settings(max_examples=200, deadline=None)
@given(sequences())
def test_any_batch_has_the_figures_of_plain_arithmetic(sent: list[Sequence]) -> None:
    assert_scalars(MEASURER.measure(packed(sent), PRESETS))


@settings(max_examples=100, deadline=None)
@given(sequences(), sequences())
def test_any_merge_has_the_figures_of_plain_arithmetic(one: list[Sequence], other: list[Sequence]) -> None:
    assert_scalars(merge_all(MEASURER.measure(packed(sent), PRESETS) for sent in (one, other)))


@pytest.mark.parametrize("noise", [0.0, 1e-4, 0.05, 3.0])
def test_batches_of_a_language_models_shape_have_the_figures_of_plain_arithmetic(noise: float) -> None:
    one, other = (MEASURER.measure(packed(random_sequences(seed, [5, 40, 300, 1], noise)), PRESETS) for seed in (1, 2))
    for summary in (one, merge_all([one, other]), FULL, FULL.merge(OTHER), FULL.merge(one)):
        assert_scalars(summary)


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_what_older_releases_stored_has_the_figures_of_plain_arithmetic(path: Path) -> None:
    summary = from_bytes(path.read_bytes())
    for found in (summary, merge_all([summary, FULL]), merge_all([summary] * 3)):
        assert_scalars(found)
