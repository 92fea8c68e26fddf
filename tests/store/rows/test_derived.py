"""Figures of a step are read off its summary; a database of an older release, which stored them, answers the same."""

import numpy as np
import pytest
from offpolicy_monitor.figures import HEADLINE, at, headline, walk
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.store import ShardKey, ShardRecord, Store
from offpolicy_monitor.store.rows.codec import pack
from offpolicy_monitor.store.rows.derived import Figures
from offpolicy_monitor.store.rows.tables import steps
from offpolicy_monitor.store.rows.wanted import figures_for
from offpolicy_monitor.store.session import Database, parse_url
from offpolicy_monitor.summary import stored
from offpolicy_monitor.summary.step import StepSummary, merge_all
from sqlalchemy import select, update

from tests.detection.state import Run, State
from tests.detection.steps import make_step


@pytest.fixture(scope="module")
def summary() -> StepSummary:
    """A step of two engines, with everything that can be sent."""
    run, measurer = Run(shards=2, labelled=True, routed=True), Measurer("cpu")
    parts = make_step(run, State(), 3, np.random.default_rng([7, 3]))
    return merge_all(measurer.measure(batch, PRESETS, origin) for batch, origin in parts)


def record(summary: StepSummary) -> ShardRecord:
    return ShardRecord(ShardKey("r1", 0, 3, 0, 0), 1, bytes(16), summary, 1000.0, minibatches=1)


def as_an_older_release(url: str, summary: StepSummary) -> None:
    """Let the step have its figures, as every step once had."""
    database = Database(parse_url(url))
    with database.writing() as connection:
        connection.execute(update(steps).values(figures=pack(summary.step_figures())))
    database.close()


def test_a_step_stores_its_summary_and_no_figures(store: Store, database_url: str, summary: StepSummary) -> None:
    store.ingest([record(summary)])
    database = Database(parse_url(database_url))
    with database.reading() as connection:
        figures, kept = connection.execute(select(steps.c.figures, steps.c.summary)).one()
    database.close()
    assert figures is None and kept == stored.to_bytes(summary)


def test_what_is_derived_is_what_an_older_release_stored(store: Store, database_url: str, summary: StepSummary) -> None:
    store.ingest([record(summary)])
    step, rows, shown = store.step("r1", 3), store.steps("r1").rows, store.exported(1, 0.0)[0].figures
    assert len(step["breakdowns"]) > 3 and len(shown["methods"]) == len(PRESETS)
    as_an_older_release(database_url, summary)
    assert store.step("r1", 3) == step
    assert store.steps("r1").rows == rows
    assert store.exported(1, 0.0)[0].figures == shown


def test_a_figure_alone_is_that_of_all_figures(summary: StepSummary) -> None:
    whole, figures = summary.step_figures(), Figures(None, stored.to_bytes(summary))
    chosen = sorted(dict(walk(whole)))[::23]
    assert len(chosen) > 50
    wanted = [at(whole, path) for path in chosen]
    assert [figures.at_each([path], 1)[0] for path in chosen] == figures.at_each(chosen, 1) == wanted


def test_headline_figures_need_no_breakdowns(summary: StepSummary) -> None:
    assert headline(figures_for(summary, HEADLINE), "icepop") == headline(summary.step_figures(), "icepop")
    assert "breakdowns" not in figures_for(summary, HEADLINE)


def test_what_a_reader_changes_is_its_own(summary: StepSummary) -> None:
    figures = Figures(None, stored.to_bytes(summary))
    figures.read()["gaps"].clear()
    assert figures.read()["gaps"].keys() == {"mismatch", "staleness", "total"}


def test_a_step_without_a_merge_has_no_figures() -> None:
    assert Figures(None, None).read() == {} and Figures(None, None).at_each(["tokens"], 1)[0] is None
