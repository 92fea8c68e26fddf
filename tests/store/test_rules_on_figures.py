"""A rule on any figure that is answered is judged, through the store, whether the figure is kept narrow or not."""

from collections.abc import Callable
from dataclasses import replace
from hashlib import md5
from typing import Any

import pytest
from offpolicy_monitor.alerts import Rule
from offpolicy_monitor.alerts.comparisons import figure
from offpolicy_monitor.figures import is_headline, walk
from offpolicy_monitor.methods import parse_selection
from offpolicy_monitor.server.judge import RulesJudge
from offpolicy_monitor.store import Receipt, Store

from tests.figures.everything import CORRECTION, ROWS, summary
from tests.fixtures.shards import make_record

Open = Callable[..., Store]


def rule_on(path: str, threshold: float) -> Rule:
    """Breaches from the first step on where the figure is above the threshold."""
    name = md5(path.encode()).hexdigest()
    return Rule(name, "A test", (path,), figure(path), path, {"warning": threshold}, {"warning": 1}, "test")


def judged(open_store: Open, rules: list[Rule], gradient_steps: int = 1) -> dict[str, dict[str, Any]]:
    """What these rules say of a run's only training step, by the path they look at."""
    store = open_store(judge=RulesJudge(rules))
    store.ingest([make_record(0)])
    store.update_run("r1", methods=[row.definition for row in parse_selection(ROWS)], correction=CORRECTION)
    for minibatch in range(gradient_steps):
        record = make_record(1, minibatch=minibatch, minibatches=gradient_steps, policy_version=9)
        [receipt] = store.ingest([replace(record, summary=summary(minibatch))])
        assert isinstance(receipt, Receipt)
    step, states = store.states("r1")
    assert step == 1
    paths = {rule.name: rule.expression for rule in rules}
    return {paths[state["alert"]]: state for state in states}


@pytest.mark.parametrize("path", ["gaps.total.k2", "gaps.mismatch.sequence.quantiles.0.999", "signature.regression.z"])
def test_a_rule_on_a_figure_that_is_not_kept_narrow_becomes_active(open_store: Open, path: str) -> None:
    assert not is_headline(path)
    state = judged(open_store, [rule_on(path, -1e9)])[path]
    assert state["state"] == "active"
    assert state["value"] == pytest.approx(dict(walk(summary(0).step_figures()))[path])


@pytest.mark.parametrize("gradient_steps", [1, 2])
def test_no_rule_on_any_figure_is_silent(open_store: Open, gradient_steps: int) -> None:
    answered = set.intersection(*(set(dict(walk(summary(step).step_figures()))) for step in range(gradient_steps)))
    assert len(answered) > 1000
    of_correction = {f"correction.{name}" for name in ("k3_kept", "masked_token_fraction", "length_bias.longest")}
    paths = sorted({*answered, *of_correction, "policy_version"})
    states = judged(open_store, [rule_on(path, -1e9) for path in paths], gradient_steps)
    assert {path for path in paths if states[path]["state"] != "active"} == set()
