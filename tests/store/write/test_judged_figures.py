"""What a training step is judged by is read off a part of its summaries, which has the same figures as the whole."""

from functools import cache

import numpy as np
from offpolicy_monitor.alerts import RULES, of_all, paths_of
from offpolicy_monitor.figures import at, walk, with_correction
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.store.rows.wanted import needed
from offpolicy_monitor.summary.step import StepSummary, merge_all

from tests.detection.state import Run, State
from tests.detection.steps import make_step
from tests.summary.full import any_measurer


@cache
def gradient_steps() -> list[StepSummary]:
    """Three gradient steps of two engines, with everything that can be sent."""
    run, measurer = Run(shards=2, labelled=True, routed=True), any_measurer()
    batches = [make_step(run, State(), step, np.random.default_rng([7, step])) for step in range(3)]
    return [merge_all(measurer.measure(batch, PRESETS, origin) for batch, origin in parts) for parts in batches]


def figures_of(summaries: list[StepSummary]) -> dict[str, float]:
    """Every figure of the merge by its path."""
    return dict(walk(with_correction(merge_all(summaries).step_figures(), "icepop")))


def test_the_part_that_is_merged_has_every_figure_that_rules_look_at() -> None:
    found = gradient_steps()
    paths = of_all(paths_of(RULES))
    whole, part = figures_of(found), figures_of([needed(summary, paths) for summary in found])
    assert {path: part[path] for path in paths} == {path: whole[path] for path in paths}


def test_whoever_looks_at_any_figure_gets_it() -> None:
    found = gradient_steps()
    whole = figures_of(found)
    assert len(whole) > 1000
    for path in sorted(whole)[:: len(whole) // 40]:
        part = merge_all(needed(summary, {path}) for summary in found).step_figures()
        assert at(with_correction(part, "icepop"), path) == whole[path], path


def test_what_rules_look_at_by_default_is_all_there() -> None:
    whole = figures_of(gradient_steps())
    assert [path for path in paths_of(RULES) if path != "policy_version" and path not in whole] == []
