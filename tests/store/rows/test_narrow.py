"""Headline figures are read without the others, and are the same numbers as those among all figures."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from offpolicy_monitor.alerts import RULES, paths_of
from offpolicy_monitor.figures import HEADLINE, at_each, headline, with_correction
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.store.rows import narrow
from offpolicy_monitor.store.rows.merged_steps import Merged
from offpolicy_monitor.summary import answer, from_bytes
from offpolicy_monitor.summary.step import StepSummary, merge_all

from tests.reference import Sequence
from tests.strategies import packed, sequences
from tests.summary.full import FULL, OTHER, any_measurer

BOTH = merge_all([FULL, OTHER])
STORED = sorted((Path(__file__).parents[2] / "summary").glob("stored_v*.bin"))


def again(summary: StepSummary) -> StepSummary:
    """The same, of which nothing has been made yet."""
    return StepSummary(summary.arrays, summary.specs, summary.worst)


def assert_as_among_all(summary: StepSummary, *corrections: str | None) -> None:
    """Whether nothing was made of it, what headline figures are read off, or all figures."""
    figures, ready, made = again(summary).step_figures(), again(summary), again(summary)
    narrow.ready(ready)
    made.figures()
    for correction in corrections:
        expected = headline(figures, correction)
        for fresh in (again(summary), ready, made):
            found = narrow.headline_of(fresh, correction)
            assert found == expected
            assert {path: type(value) for path, value in found.items()} == {
                path: type(value) for path, value in expected.items()
            }


@settings(max_examples=50, deadline=None)
@given(one=sequences(), other=sequences())
def test_of_any_batch_and_of_any_merge(one: list[Sequence], other: list[Sequence]) -> None:
    parts = [any_measurer().measure(packed(sent), PRESETS) for sent in (one, other)]
    for summary in (*parts, merge_all(parts)):
        assert_as_among_all(summary, "icepop")


@pytest.mark.parametrize("row", PRESETS, ids=lambda row: row.name)
def test_of_whichever_row_is_the_correction(row: object) -> None:
    for summary in (FULL, BOTH):
        assert_as_among_all(summary, getattr(row, "name", None))


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_of_what_older_releases_stored(path: Path) -> None:
    summary = from_bytes(path.read_bytes())
    for found in (summary, merge_all([summary, FULL])):
        assert_as_among_all(found, None, *summary.specs)


def test_rules_are_judged_on_the_numbers_that_are_answered() -> None:
    for paths in (paths_of(RULES), ("gaps.total.quantiles.0.5", "gaps.total.k2", "correction.weight_ess", "tokens")):
        figures = Merged(again(FULL), 1, b"").at_each(paths, "tis_token")
        assert figures == at_each(with_correction(FULL.step_figures(), "tis_token"), paths)
        assert figures


def test_neither_quantiles_nor_length_biases_are_made_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "_quantiles", None)
    monkeypatch.setattr("offpolicy_monitor.summary.tables.lengths._rows", None)
    assert len(narrow.headline_of(again(FULL), None)) > 80


def test_default_rules_look_at_headline_figures_alone() -> None:
    assert narrow.covers(paths_of(RULES)) and narrow.covers(HEADLINE)
    assert not narrow.covers(("gaps.total.quantiles.0.5",))


def test_all_but_the_first_summary_of_a_kind_are_read_by_straight_code_to_the_same_bits() -> None:
    narrow.ready(again(FULL))
    straight, as_it_stands = again(FULL), again(FULL)
    narrow.ready(straight)
    as_it_stands.step_figures()
    found, expected = (narrow.headline_of(summary, None) for summary in (straight, as_it_stands))
    assert not straight.has_rows
    assert {path: repr(value) for path, value in found.items()} == {
        path: repr(value) for path, value in expected.items()
    }
    assert list(found) == list(expected)
