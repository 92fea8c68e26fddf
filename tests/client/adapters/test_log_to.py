"""A real trainer, its adapter and a real service, end to end: the figures and verdicts that a logger is handed.

tests/frameworks has the same with real loggers.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from offpolicy_monitor import Monitor
from offpolicy_monitor.client.adapters.trl import watch

from tests.fixtures.service import running_service

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.process("trl"),
]
FIELDS = [f"gaps.{gap}.k3" for gap in ("mismatch", "staleness", "total")]


def test_a_function_is_handed_the_headline_figures_and_the_verdict_of_each_step_that_trl_trains(tmp_path: Path) -> None:
    trl, seen = importlib.import_module("tests.client.adapters.trl_trainer"), list[tuple[int, str | None]]()
    figures: list[Mapping[str, float]] = []

    def keep(step: int, found: Mapping[str, float], verdict: str | None) -> None:
        seen.append((step, verdict))
        figures.append(found)

    with running_service(tmp_path) as url, Monitor(url, "trl", strict=True, log_to=keep) as monitor:
        watch(trl.trainer(trl.SamplingTrainer, tmp_path), monitor).train()
        monitor.close(30.0)
        told = monitor.series(["verdict", *FIELDS], by="step")
    assert seen == [(0, told["verdict"]["value"][0]), (4, told["verdict"]["value"][1])]
    for index, found in enumerate(figures):
        assert [found[f"offpolicy/{field}"] for field in FIELDS] == [told[field]["value"][index] for field in FIELDS]
        assert found["offpolicy/tokens"] > 0
