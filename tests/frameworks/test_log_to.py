"""TRL's trainer logs to W&B (offline) and to TensorBoard as ever, and finds there what the service says of its steps.

The service is the one of this checkout, from the environment that `make run` installs.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from offpolicy_monitor import Monitor
from offpolicy_monitor.client.adapters.trl import watch

from tests.fixtures.service import running_service
from tests.frameworks.test_loggers import kept_by_wandb

SERVICE = Path(__file__).resolve().parents[2] / ".venv" / "bin" / "offpolicy-monitor"
FIELDS = [f"gaps.{gap}.k3" for gap in ("mismatch", "staleness", "total")]
VERDICTS = {"accept": 0, "warn": 1, "skip": 2}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_service(tmp_path_factory.mktemp("service"), (str(SERVICE),)) as address:
        yield address


def trained(real: Any, monitor: Monitor, folder: Path, logger: str) -> list[tuple[float, ...]]:
    """Two rollouts of four gradient steps; what the service says of each: step, verdict as a number, k3 of the gaps."""
    task = real("tests.client.adapters.trl_trainer")
    logs = {"report_to": logger, "logging_strategy": "steps", "logging_steps": 1}
    watch(task.trainer(task.SamplingTrainer, folder, **logs), monitor).train()
    monitor.close(30.0)
    assert monitor.stats["last_error"] is None and monitor.stats["sent"] == 8
    told = monitor.series(["verdict", *FIELDS], by="step")
    verdicts = [VERDICTS[verdict] for verdict in told["verdict"]["value"]]
    columns = [told[field]["value"].tolist() for field in FIELDS]
    return list(zip(told["verdict"]["step"].tolist(), verdicts, *columns, strict=True))


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_has_the_verdict_and_the_gaps_beside_the_loss(real: Any, url: str, tmp_path: Path) -> None:
    events, writer = real("tensorboard.backend.event_processing.event_accumulator"), None
    writer = real("torch.utils.tensorboard").SummaryWriter(str(tmp_path / "ours"))
    told = trained(real, Monitor(url, "tensorboard", strict=True, log_to=writer), tmp_path / "out", "none")
    writer.close()
    kept = events.EventAccumulator(str(tmp_path / "ours")).Reload()
    columns = [kept.Scalars(f"offpolicy/{name}") for name in ("verdict", *FIELDS)]
    assert [event.step for event in columns[0]] == [row[0] for row in told] == [0, 4]
    for row, found in zip(told, zip(*columns, strict=True), strict=True):
        assert [event.value for event in found] == pytest.approx(list(row[1:]), rel=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_wandb_has_them_in_rows_of_the_trainers_own(
    real: Any, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, value)
    wandb = real("wandb")
    run = wandb.init(project="grpo")
    told = trained(real, Monitor(url, "wandb", strict=True, log_to=run), tmp_path / "out", "wandb")
    run.finish()
    wandb.teardown()  # what it holds is then on disk
    rows = kept_by_wandb(tmp_path)
    ours = [row for row in rows if "offpolicy/step" in row]
    found = [tuple(row[f"offpolicy/{name}"] for name in ("step", "verdict", *FIELDS)) for row in ours]
    # Of steps that come while the trainer is at one row the newest stands.
    assert found and found[-1] == told[-1] and set(found) <= set(told)
    assert sum("train/loss" in row for row in rows) == 8
