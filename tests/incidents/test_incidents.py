"""Published series of real runs, judged as the service would: incidents are told in time, healthy runs never."""

import json
from pathlib import Path
from typing import Any

import pytest
from offpolicy_monitor.alerts import RULES, Terms, paths_of
from offpolicy_monitor.backtest.figures import figures_of
from offpolicy_monitor.backtest.tables import read
from offpolicy_monitor.backtest.timeline import Alert, timeline

SERIES = sorted((Path(__file__).parent / "series").glob("*.json"))


def told(path: Path) -> tuple[dict[str, Any], list[Alert]]:
    """The truth of a series, and what is told of it."""
    table = read(path)
    found = timeline(figures_of([table], paths_of(RULES)), Terms(table.profile or "dense_bf16"))
    truth: dict[str, Any] = json.loads(path.read_text())["truth"]
    return truth, found


@pytest.mark.parametrize("path", SERIES, ids=lambda path: path.stem)
def test_an_incident_is_warned_of_in_time_and_a_healthy_run_never(path: Path) -> None:
    truth, alerts = told(path)
    if truth["label"] == "incident":
        assert min(alert.step for alert in alerts) <= truth["alert_by"]
    else:
        assert [(alert.alert, alert.severity, alert.step) for alert in alerts] == []


def test_both_kinds_are_there_with_their_source_and_licence() -> None:
    documents = [json.loads(path.read_text()) for path in SERIES]
    assert [document["truth"]["label"] for document in documents].count("incident") == 8
    assert [document["truth"]["label"] for document in documents].count("healthy") == 4
    assert all(document["source"] and document["licence"] for document in documents)


def test_the_text_of_an_incident_says_what_grew_since_when_and_how_seldom_that_is() -> None:
    [path] = [path for path in SERIES if path.stem == "primerl_nixl_iter05"]
    _, [alert] = told(path)
    assert alert.message == (
        "Engine and trainer drift apart: k3 has grown 4.7 times since step 3, to 0.0088; a healthy run does so once in "
        "20,000 steps. Measured against the current policy, since the run sends no old_logprobs: staleness is included."
    )
