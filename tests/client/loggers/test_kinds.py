"""A logger is known by what it can do; what is written to the real ones is tested by `make frameworks`."""

from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from offpolicy_monitor.client.loggers import kinds
from offpolicy_monitor.errors import ConfigurationError

FIGURES = {"offpolicy/tokens": 5.0, "offpolicy/verdict": 0.0}


class Run:
    """A W&B run, whose rows end where its trainer logs."""

    def __init__(self) -> None:
        self.step = 0
        self.defined: list[tuple[str, Mapping[str, Any]]] = []
        self.rows: list[dict[str, Any]] = [{}]

    def define_metric(self, name: str, **options: Any) -> None:
        self.defined.append((name, options))

    def log(self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        self.rows[-1] |= data
        if commit is not False:
            self.step += 1
            self.rows.append({})


class Writer:
    """A SummaryWriter."""

    def __init__(self) -> None:
        self.scalars: list[tuple[str, float, int]] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self.scalars.append((tag, scalar_value, global_step))


def test_a_wandb_run_gets_them_in_the_row_that_its_trainer_ends_with_the_step_as_their_x() -> None:
    run = Run()
    logger = kinds.logger_of(run)
    logger.write(7, FIGURES, "accept")
    run.log({"loss": 0.5})
    logger.write(8, FIGURES, "accept")
    assert run.rows == [{**FIGURES, "offpolicy/step": 7, "loss": 0.5}, {**FIGURES, "offpolicy/step": 8}]
    assert run.defined == [
        ("offpolicy/step", {"hidden": True}),
        ("offpolicy/*", {"step_metric": "offpolicy/step"}),
    ]


def test_a_step_waits_for_a_row_of_its_own_that_is_not_before_it() -> None:
    run = Run()
    logger = kinds.logger_of(run)
    ready = []
    for step in (1, 2, 3):
        early = logger.is_ready(step)
        run.log({"loss": 0.5})
        ready.append((early, logger.is_ready(step)))
        logger.write(step, FIGURES, "accept")
        assert not logger.is_ready(step + 1)
    assert ready == [(False, True)] * 3
    assert [row.get("offpolicy/step") for row in run.rows] == [None, 1, 2, 3]


def test_a_wandb_run_to_which_nobody_else_logs_is_told_of_once() -> None:
    logger = kinds.logger_of(Run())
    raised = 0
    for step in range(3 * kinds.ALONE):
        try:
            logger.write(step, FIGURES, "accept")
        except RuntimeError as error:
            raised += 1
            assert "run.log(figures, step=step)" in str(error)
    assert raised == 1


def test_a_summary_writer_gets_a_scalar_for_each() -> None:
    writer = Writer()
    kinds.logger_of(writer).write(7, FIGURES, "accept")
    assert writer.scalars == [("offpolicy/tokens", 5.0, 7), ("offpolicy/verdict", 0.0, 7)]


def test_a_function_gets_the_verdict_as_a_word() -> None:
    seen = list[Any]()
    kinds.logger_of(lambda *given: seen.append(given)).write(7, FIGURES, "accept")
    assert seen == [(7, FIGURES, "accept")]


def test_a_client_of_mlflow_comes_with_the_id_of_its_run() -> None:
    client = SimpleNamespace(log_batch=None)
    logger = kinds.logger_of((client, "abc"))
    assert isinstance(logger, kinds.MLflow) and (logger.client, logger.run_id) == (client, "abc")


@pytest.mark.parametrize("target", [3, (SimpleNamespace(log_batch=None),), ModuleType("wandb"), "wandb"])
def test_anything_else_is_no_logger(target: object) -> None:
    with pytest.raises(ConfigurationError, match=r"none of a W&B run \(wandb.init\(\)\), a SummaryWriter"):
        kinds.logger_of(target)
