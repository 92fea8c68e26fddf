"""The plan, what is read of a run, and the tables: all of `make engines` but the engines."""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import pytest
from offpolicy_monitor.demo.cli import add_arguments, config_of
from offpolicy_monitor.demo.engines.kinds import ENGINES, require_plantable, require_precision
from offpolicy_monitor.demo.scenarios import config_at
from offpolicy_monitor.diagnosis.hypotheses import HYPOTHESES

from tests.engines.__main__ import BEGIN, COMMITTED, END, PAGE
from tests.engines.outcome import Named, Outcome, Told, told_of
from tests.engines.plan import CASES, ONSET, STEPS, Case
from tests.engines.play import outcome_of
from tests.engines.report import row, tables

CASE = Case("vllm", "top-p 0.9", ("--fault", "top_p"), ("top_p",))
TOLD = (Told("MismatchSpike", "warning", 15, "MismatchKL", True), Told("MismatchKL", "critical", 17, None, True))
NAMES = [Named(14, "noise", 0.9), Named(15, "top_p", 0.6), Named(16, "noise", 0.5), Named(17, "top_p", 0.8)]
SEEN = Outcome("vllm", "top-p 0.9", ["demo"], ("top_p",), True, 14, 18, 9.0, 1e-4, 0.02, TOLD, NAMES)
HEALTHY = replace(SEEN, planted="nothing", right=("noise",), wanted=False, onset=0, k3_before=None, alerts=())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.run)
def test_a_case_is_one_that_the_demo_and_its_engine_can_do(case: Case) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    config = config_of(parser.parse_args(["--engine", case.engine, *case.arguments, "--onset", str(ONSET)]))
    require_precision(ENGINES[case.engine], config.sampler)
    fault = config_at(config, ONSET).fault
    assert (fault is not None or "sync-broken" in case.arguments) == case.told
    if fault is not None:
        require_plantable(ENGINES[case.engine], fault)
    assert {*case.right} <= {hypothesis.name for hypothesis in HYPOTHESES}


def test_no_two_cases_share_a_run() -> None:
    assert len({case.run for case in CASES}) == len(CASES)


def test_an_alert_is_told_where_it_became_active() -> None:
    rows: list[dict[str, Any]] = [
        {
            "alert": "A",
            "severity": "warning",
            "state": "pending",
            "active_step": None,
            "inhibited_by": None,
            "told": False,
        },
        {
            "alert": "B",
            "severity": "critical",
            "state": "resolved",
            "active_step": 9,
            "inhibited_by": None,
            "told": True,
        },
        {"alert": "C", "severity": "warning", "state": "active", "active_step": 3, "inhibited_by": "B", "told": False},
    ]
    assert told_of(rows) == [Told("C", "warning", 3, "B", False), Told("B", "critical", 9, None, True)]


def test_a_diagnosis_is_right_since_the_step_from_which_it_stays_right() -> None:
    assert SEEN.since == 17
    assert replace(SEEN, diagnoses=NAMES[:3]).since is None
    assert replace(SEEN, diagnoses=NAMES[:2]).since == 15


def test_of_alerts_at_one_step_the_one_that_speaks_is_the_first() -> None:
    both = (
        Told("A", "warning", 15, "B", False),
        Told("B", "warning", 15, None, True),
        Told("C", "warning", 2, None, True),
    )
    outcome = replace(SEEN, alerts=both)
    assert (outcome.first(), outcome.first("critical"), outcome.false) == (both[1], None, [both[2]])


def test_steps_are_counted_from_the_onset_as_the_first() -> None:
    alerts = "| 2: `MismatchSpike` | 4: `MismatchKL` | `MismatchKL` |"
    assert row(SEEN) == f"| top-p 0.9 | 1.0e-04 | 2.0e-02 {alerts} `top_p` (0.80) | 4 |"
    wrong = replace(SEEN, right=("temperature",), alerts=())
    assert row(wrong).endswith("| none | none | none | `top_p` (0.80); right is `temperature` | never |")


def test_faults_are_counted_apart_from_healthy_runs() -> None:
    *_, faults, before, calm = tables([SEEN, replace(SEEN, right=("noise",)), HEALTHY])
    told, right = "an alert for 2 of 2 (16 to 100 %)", "the right diagnosis in the end for 1 of 2 (1 to 99 %)"
    assert faults == f"- Faults: {told}, {right}."
    assert before == "- Before their onset, in 28 steps: no alert."
    assert calm == "- Healthy runs: 1 with 18 steps: no alert."
    *_, calm = tables([replace(HEALTHY, alerts=TOLD)])
    assert calm == "- Healthy runs: 1 with 18 steps: 1 critical, 1 warnings (`MismatchKL`, `MismatchSpike`)."


def test_a_run_is_read_with_six_calm_steps_before_the_onset() -> None:
    asked = []

    def ask(path: str) -> Mapping[str, Any]:
        asked.append(path)
        if "noise_floor" in path:
            return {"step": [0, ONSET, STEPS - 1], "value": [0.1, None, 0.75]}
        if "series" in path:
            return {"step": list(range(STEPS)), "value": [None] + [1e-4] * (ONSET - 1) + [0.02] * (STEPS - ONSET)}
        return {"alerts": [], "hypotheses": [{"name": "top_p", "score": 0.81234}]}

    outcome = outcome_of(CASE, ["demo"], 1.26, ask)
    assert (outcome.k3_before, outcome.k3_after, outcome.seconds, outcome.since) == (1e-4, 0.02, 1.3, ONSET)
    assert asked[3] == f"/v1/runs/vllm-fault-top_p/diagnosis?from={ONSET - 6}&to={ONSET}"
    assert outcome.last == Named(STEPS - 1, "top_p", 0.812)
    assert outcome.internal == 0.75 and row(outcome).startswith("| top-p 0.9: 75% within the engine | 1.0e-04 |")


def test_what_is_committed_is_what_the_page_shows() -> None:
    outcomes = [Outcome.of(row) for row in json.loads(COMMITTED.read_text())]
    shown = PAGE.read_text().split(BEGIN)[1].split(END)[0]
    assert "\n".join(tables(outcomes)) in shown
    assert [json.loads(json.dumps(asdict(outcome))) for outcome in outcomes] == json.loads(COMMITTED.read_text())
