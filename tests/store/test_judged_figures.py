"""What a training step is judged by is read off a part of its summaries, which has the same figures as the whole."""

import numpy as np
from offpolicy_monitor.alerts import OF_ALL, PATHS
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.store.derived import needed
from offpolicy_monitor.store.fields import headline
from offpolicy_monitor.summary.step import StepSummary, merge_all

from tests.detection.state import Run, State
from tests.detection.steps import make_step


def gradient_steps() -> list[StepSummary]:
    """Three gradient steps of two engines, with everything that can be sent."""
    run, measurer = Run(shards=2, labelled=True, routed=True), Measurer("cpu")
    batches = [make_step(run, State(), step, np.random.default_rng([7, step])) for step in range(3)]
    return [merge_all(measurer.measure(batch, PRESETS, origin) for batch, origin in parts) for parts in batches]


def test_the_part_that_is_merged_has_every_figure_that_rules_look_at() -> None:
    found = gradient_steps()
    whole = headline(merge_all(found).step_figures(), "icepop")
    part = headline(merge_all(needed(summary, OF_ALL) for summary in found).step_figures(), "icepop")
    expected = {path: whole[path] for path in OF_ALL if path in whole}
    assert {path: part[path] for path in OF_ALL if path in part} == expected
    assert OF_ALL - expected.keys() == set()


def test_whoever_looks_at_methods_and_other_gaps_gets_them() -> None:
    found = gradient_steps()
    paths = {path for path in PATHS if path != "policy_version"}
    whole = headline(merge_all(found).step_figures(), "icepop")
    part = headline(merge_all(needed(summary, paths) for summary in found).step_figures(), "icepop")
    assert {path: part.get(path) for path in paths} == {path: whole.get(path) for path in paths}
