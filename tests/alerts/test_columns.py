"""Rules that look back from one step decide as an oracle does that computes whole columns, whatever the run does."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
import pytest
from offpolicy_monitor.alerts import RULES, History, Terms, evaluate, paths_of
from offpolicy_monitor.alerts.episodes import Episode, Key, follow, may_go_on
from offpolicy_monitor.alerts.judge import judge_steps, shown
from offpolicy_monitor.alerts.roots import roots_of
from offpolicy_monitor.server.states import all_shown
from offpolicy_monitor.vocabulary import PROFILES

from tests.alerts.columns import Column, said
from tests.alerts.test_rules import BREACHES, HEALTHY

PATHS = paths_of(RULES)
STEPS = 140
LEARNED = ("signature.learned.difference", "signature.learned.z")
#: What happens to a run: paths, the step it begins at, the factor that it grows by at once and with each step.
FAULTS = {
    "jump": (("gaps.mismatch.k3", "gaps.mismatch.abs_log_ratio_mean"), 4.0, 1.0),
    "unsynced": (("gaps.mismatch.k3", "gaps.mismatch.abs_log_ratio_mean", *LEARNED), 4.0, 1.1),
    "drift": (("gaps.mismatch.k3", "gaps.total.abs_log_ratio_mean"), 1.0, 1.03),
    "longer": (("sequence_length_mean",), 1.0, 1.03),
    "collapse": (("entropy_mean", "gaps.mismatch.ess"), 0.6, 0.97),
    "blind": (("correction.masked_token_fraction", "correction.masked_sequence_fraction"), 1.0, 0.97),
    "hot": (("calibration.excess", "calibration.z"), 100.0, 1.0),
    "stale": (("gaps.total.log_ratio_mean", "gaps.total.outward_second_moment", "attribution.staleness"), 1.4, 1.05),
}


def played(seed: int) -> dict[str, Column]:
    """A run with faults, steps that lack figures, and single steps that breach anything."""
    source = np.random.default_rng(seed)
    columns = {path: value * (1 + 0.05 * source.standard_normal(STEPS)) for path, value in HEALTHY.items()}
    columns["tokens"] = np.full(STEPS, HEALTHY["tokens"])
    began = source.integers(0, STEPS)
    columns["sequence_length_max"][began : began + source.integers(1, 40)] = 4096.0
    columns["longest_fraction"][began:] = source.choice([0.6, 0.95, 1.0], STEPS - began)
    columns["policy_version"] = np.cumsum(source.random(STEPS) < source.choice([0.2, 1.0])).astype(np.float64)
    for name in source.choice(list(FAULTS), 3, replace=False):
        paths, at_once, each = FAULTS[name]
        began, ended = sorted(source.integers(0, STEPS, 2))
        for path in paths:
            columns[path][began:ended] *= at_once * each ** np.arange(ended - began)
    for breach in (BREACHES[name] for name in source.choice(list(BREACHES), 5)):
        began = source.integers(0, STEPS)
        for path, value in breach.items():
            columns[path][began : began + source.integers(1, 12)] = value
    for path in source.choice(PATHS, 12, replace=False):
        columns[path][source.random(STEPS) < source.choice([0.02, 0.3, 0.8])] = np.nan
    columns[source.choice(PATHS)][:] = np.nan
    return columns


def terms(seed: int) -> Terms:
    """A profile, a kind of correction, and now and then terms of the run's own."""
    own: Mapping[str, Mapping[str, Any]] = {
        "LengthSurge": {"warning": 1.1, "steps": 3},
        "MismatchDrift": {"enabled": False},
        "LowEffectiveSampleSize": {"critical": None},
        "TotalOffPolicy": {"enabled": False, "warning": 0.01},
    }
    correction = ("token", "sequence", "gspo", None)[seed % 4]
    return Terms(PROFILES[seed % len(PROFILES)], correction, own if seed % 3 else {}, 4000 if seed % 4 == 1 else None)


@pytest.mark.parametrize("seed", range(12))
def test_every_state_at_every_step_is_that_of_the_oracle(seed: int) -> None:
    columns, in_force = played(seed), terms(seed)
    with np.errstate(invalid="ignore"):
        oracles = [said(rule, severity, columns, in_force) for rule in RULES for severity in rule.severities]
    noted: dict[str, list[float | None]] = {}
    seen, lists = set(), {path: column.tolist() for path, column in columns.items()}
    for step in range(STEPS):
        so_far = {path: column[: step + 1] for path, column in lists.items()}
        history = History(range(step + 1), so_far, noted)
        states = [shown(state) for state in evaluate(RULES, history, in_force)]
        expected = [oracle(step) for oracle in oracles]
        assert [state | {"value": None} for state in states] == [oracle | {"value": None} for oracle in expected]
        assert [state.get("value") for state in states] == pytest.approx([oracle.get("value") for oracle in expected])
        seen |= {state["state"] for state in states}
    assert seen == {"quiet", "pending", "active", "silent", *({"disabled"} if seed % 3 else ())}


@pytest.mark.parametrize("seed", range(0, 12, 4))
def test_rules_at_rest_are_followed_and_shown_as_by_their_states(seed: int) -> None:
    """Rules that do not breach are passed over where nothing is open of them, and shown by texts made once."""
    columns, in_force = played(seed), terms(seed)
    noted: dict[str, list[float | None]] = {}
    open_: dict[Key, Episode] = {}
    were_active, lists = 0, {path: column.tolist() for path, column in columns.items()}
    for step in range(STEPS):
        history = History(range(step + 1), {path: column[: step + 1] for path, column in lists.items()}, noted)
        judged, after = judge_steps(history, in_force, open_.values())
        states = evaluate(RULES, history, in_force)
        assert after == follow(open_, states, step)
        active = {key: episode for key, episode in after.items() if episode.state == "active"}
        roots = roots_of(list(after.values()))
        expected = [shown(state, active, roots) for state in states]
        assert orjson.dumps(all_shown(judged, active, roots)) == orjson.dumps(expected)
        open_ = {key: episode for key, episode in after.items() if may_go_on(episode)}
        were_active += len(active)
    assert were_active


def test_a_restart_changes_nothing_that_rules_say() -> None:
    """What was noted of earlier steps is gone then. At step 59 of this run growth is held that k3 shows no longer."""
    columns, in_force = {path: column.tolist() for path, column in played(39).items()}, terms(0)
    noted: dict[str, list[float | None]] = {}
    for step in range(80):
        so_far = {path: column[: step + 1] for path, column in columns.items()}
        going_on, anew = (History(range(step + 1), so_far, notes) for notes in (noted, {}))
        assert evaluate(RULES, anew, in_force) == evaluate(RULES, going_on, in_force)
