"""Kinds: how the figures of a step are written to W&B, to TensorBoard, to MLflow, or given to a function.

Each is known by what it can do, so that none of them is imported. What a logger raises passes through: who hands steps
over says it once.
"""

import contextlib
import importlib
import sys
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final, Protocol

from offpolicy_monitor.client.loggers.names import PREFIX, STEP
from offpolicy_monitor.errors import ConfigurationError

FORMS: Final = (
    "a W&B run (wandb.init()), a SummaryWriter, (MlflowClient(), run_id), mlflow.active_run(), "
    "or a function of step, figures and verdict"
)
#: Steps after which a W&B run should have a row of its trainer.
ALONE: Final = 20
NOBODY: Final = (
    "nobody else logs to this W&B run, so that only the newest step is kept; give "
    "log_to=lambda step, figures, verdict: run.log(figures, step=step)"
)


class Logger(Protocol):
    """Where steps are written, in order."""

    def is_ready(self, step: int) -> bool:
        """Whether this is the moment to write a step; one that waits too long is written all the same."""
        ...

    def write(self, step: int, figures: Mapping[str, float], verdict: str | None) -> None:
        """One step: figures by name, the verdict as a word, None where the step was never judged."""
        ...


def logger_of(target: Any) -> Logger:
    """What writes to `target`. Raises ConfigurationError where it is none of FORMS."""
    if isinstance(target, tuple) and len(target) == 2 and hasattr(target[0], "log_batch"):
        return MLflow(*target)
    if hasattr(target, "add_scalar"):
        return TensorBoard(target)
    if hasattr(target, "define_metric") and not isinstance(target, ModuleType):
        return WandB(target)
    if hasattr(getattr(target, "info", None), "run_id"):
        return MLflow(sys.modules["mlflow"].MlflowClient(), target.info.run_id)
    if callable(target):
        return Function(target)
    raise ConfigurationError(f"log_to: {type(target).__name__} is none of {FORMS}")


class AtOnce:
    """A logger that takes a step at any moment."""

    def is_ready(self, step: int) -> bool:
        """Yes."""
        return True


class WandB:
    """A W&B run, in whose rows our figures are: each is written into the row that the trainer has not ended yet.

    No row is begun or ended here, since what a trainer logs under a step that W&B has left is dropped. So a step waits
    until the trainer is at a row that has none of ours, and, where rows are steps, at its own. Of several steps that
    come while the trainer logs one row the newest stands. Plots of ours have the training step as their x.
    """

    def __init__(self, run: Any) -> None:
        self.run, self.written = run, 0
        self.row: int | None = None

    def is_ready(self, step: int) -> bool:
        """Whether the row that is open has none of ours and is not before the step."""
        row = self._open_row()
        return row is None or (row != self.row and row >= step)

    def write(self, step: int, figures: Mapping[str, float], verdict: str | None) -> None:
        """Into the row that is open. Raises RuntimeError once where no row was ever ended."""
        if not self.written:
            self.run.define_metric(STEP, hidden=True)
            self.run.define_metric(f"{PREFIX}*", step_metric=STEP)
        self.row = self._open_row()
        self.run.log({**figures, STEP: step}, commit=False)
        self.written += 1
        if self.written == ALONE and self.row == 0:
            raise RuntimeError(NOBODY)

    def _open_row(self) -> int | None:
        """The number of the row that is open; None where W&B counts none, as for a run that several write to."""
        with contextlib.suppress(Exception):
            return int(self.run.step)
        return None


class TensorBoard(AtOnce):
    """A SummaryWriter, of torch, tensorboardX or any other that has `add_scalar`."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer

    def write(self, step: int, figures: Mapping[str, float], verdict: str | None) -> None:
        """A scalar each, under the training step."""
        for name, value in figures.items():
            self.writer.add_scalar(name, value, step)


class MLflow(AtOnce):
    """A run of MLflow by its id, and the client that writes to it; the verdict is a tag too."""

    def __init__(self, client: Any, run_id: str) -> None:
        self.client, self.run_id = client, run_id
        self.said: str | None = None

    def write(self, step: int, figures: Mapping[str, float], verdict: str | None) -> None:
        """All metrics in one request, under the training step."""
        metric = importlib.import_module("mlflow.entities").Metric
        now = int(time.time() * 1000)
        self.client.log_batch(self.run_id, metrics=[metric(name, value, now, step) for name, value in figures.items()])
        if verdict is not None and verdict != self.said:
            self.client.set_tag(self.run_id, f"{PREFIX}verdict", verdict)
            self.said = verdict


class Function(AtOnce):
    """A function of step, figures and verdict."""

    def __init__(self, function: Callable[[int, Mapping[str, float], str | None], object]) -> None:
        self.function = function

    def write(self, step: int, figures: Mapping[str, float], verdict: str | None) -> None:
        """As they are."""
        self.function(step, figures, verdict)
