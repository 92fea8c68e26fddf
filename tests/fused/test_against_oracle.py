"""The figures of the fused pass are those of the float64 oracle."""

from functools import cache, partial

from hypothesis import given, settings
from offpolicy_monitor.batch import UNKNOWN_ORIGIN

from tests import reference
from tests.agreement import assert_gap_agrees, assert_method_agrees, largest_log_ratio
from tests.fixtures.fused import loaded_pass
from tests.measure.rows import ROWS
from tests.measure.test_against_oracle import expected_rows
from tests.reference import Sequence, gaps_of
from tests.reference_methods import outcome
from tests.strategies import packed, random_sequences, sequences


def assert_agrees(sent: list[Sequence]) -> None:
    summary = loaded_pass()(packed(sent), ROWS, UNKNOWN_ORIGIN, None)
    assert summary is not None
    figures = summary.figures()
    for name, value in reference.batch_counts(sent).items():
        assert figures[name] == value, name
    assert list(figures["gaps"]) == gaps_of(sent)
    for gap in gaps_of(sent):
        assert_gap_agrees(figures["gaps"][gap], sent, gap)
    rows, largest = expected_rows(sent), cache(partial(largest_log_ratio, sent))
    assert list(figures["methods"]) == [row.name for row in rows]
    for row in rows:
        wanted = outcome(sent, row.spec)
        assert wanted is not None
        assert_method_agrees(figures["methods"][row.name], wanted, largest(row.gap, row.level == "sequence"))


@settings(max_examples=120)
@given(sent=sequences())
def test_any_batch_gets_the_oracles_figures(sent: list[Sequence]) -> None:
    assert_agrees(sent)


def test_batches_of_a_language_models_shape_get_the_oracles_figures() -> None:
    for noise in (1e-5, 1e-3, 0.03, 0.3, 2.0):
        assert_agrees(random_sequences(7, [1, 50, 2, 520, 0, 17], noise, drift=noise / 10))


def test_long_sequences_that_drift_get_the_oracles_figures() -> None:
    for drift in (-0.03, 0.03):
        assert_agrees(random_sequences(3, [600, 200, 10], 0.01, drift))
