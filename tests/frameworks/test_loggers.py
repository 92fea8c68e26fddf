"""The code of docs/loggers.md, run with the real W&B (offline), TensorBoard and MLflow, and read back from their files.

The service is one that knows the steps; that the real one answers such steps is tested where it is installed.
"""

import json
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.client.loggers.steps import Steps, knowing, row

PAGE = Path(__file__).resolve().parents[2] / "docs" / "loggers.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
K3 = "offpolicy/gaps.mismatch.k3"
#: Of a log of LevelDB: bytes of W&B before it, of a block, and what stands before a part: checksum, size, kind.
HEADER, BLOCK, PART = 7, 1 << 15, struct.Struct("<IHB")
WHOLE, LAST = 1, 4
BATCH = {name: [[-0.5, -1.25]] for name in ("sampling_logprobs", "old_logprobs", "logprobs")}
Example = Callable[..., SimpleNamespace]


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Example]:
    """`example("wandb")` runs the page's lines that import it, in an empty folder, and gives what they have made."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}.items():
        monkeypatch.setenv(name, value)
    rows = [row(step, verdict, gaps={"mismatch": {"k3": step / 8}}) for step, verdict in enumerate(["accept", "skip"])]
    with knowing(Steps(rows)) as service:

        def run(library: str, **changes: str) -> SimpleNamespace:
            [block] = [block for block in BLOCKS if f"import {library}\n" in block or f"from {library} " in block]
            for old, new in {"http://monitor:8900": service.url, **changes}.items():
                block = block.replace(old, new)
            made: dict[str, Any] = {}
            exec(block, made)
            return SimpleNamespace(**made)

        yield run


def trained(monitor: Any, log: Callable[[int], object] = lambda step: None) -> None:
    """Two steps of a trainer, which logs at the end of each."""
    for step in range(2):
        monitor.log(step=step, **BATCH)
        log(step)
        assert monitor.finish()
    monitor.close()
    assert monitor.stats["last_error"] is None


def test_wandb_has_each_step_in_the_row_of_its_trainer(example: Example, tmp_path: Path) -> None:
    made = example("wandb")
    trained(made.monitor, lambda step: made.run.log({"loss": 1 - step}, step=step))
    made.run.finish()
    made.wandb.teardown()  # what it holds is then on disk
    rows = kept_by_wandb(tmp_path)
    assert [(found["_step"], found["offpolicy/step"], found[K3], found["loss"]) for found in rows] == [
        (0, 0, 0.0, 1),
        (1, 1, 0.125, 0),
    ]
    assert [found["offpolicy/verdict"] for found in rows] == [0, 2]


def kept_by_wandb(folder: Path) -> list[dict[str, Any]]:
    """The rows of history in the file of an offline run."""
    from wandb.proto import wandb_internal_pb2

    [file] = folder.rglob("*.wandb")
    rows = []
    for data in records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
    return rows


def records(text: bytes) -> Iterator[bytes]:
    """The records of a log as LevelDB writes it: blocks of 32 KiB, in them parts of records, each with what it is."""
    at, record = HEADER, b""
    while at + PART.size <= len(text):
        if BLOCK - at % BLOCK < PART.size:
            at += BLOCK - at % BLOCK
            continue
        _, size, kind = PART.unpack_from(text, at)
        at += PART.size
        record += text[at : at + size]
        at += size
        if kind in (WHOLE, LAST):
            yield record
            record = b""


def test_tensorboard_has_a_scalar_for_each_step(example: Example, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    made = example("torch.utils.tensorboard")
    trained(made.monitor)
    made.writer.close()
    events = EventAccumulator(str(tmp_path / "runs" / "qwen3-grpo-7")).Reload()
    assert [(event.step, event.value) for event in events.Scalars(K3)] == [(0, 0.0), (1, 0.125)]
    assert [(event.step, event.value) for event in events.Scalars("offpolicy/verdict")] == [(0, 0.0), (1, 2.0)]


def test_mlflow_has_a_metric_for_each_step_and_the_newest_verdict_as_a_tag(example: Example, tmp_path: Path) -> None:
    made = example("mlflow", **{"http://mlflow:5000": (tmp_path / "mlruns").as_uri()})
    trained(made.monitor)
    assert [(found.step, found.value) for found in made.client.get_metric_history(made.run_id, K3)] == [
        (0, 0.0),
        (1, 0.125),
    ]
    assert made.client.get_run(made.run_id).data.tags["offpolicy/verdict"] == "skip"


def test_the_active_run_of_mlflow_is_a_logger_too(example: Example, tmp_path: Path) -> None:
    import mlflow
    from offpolicy_monitor.client.loggers.kinds import logger_of

    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    with mlflow.start_run() as run:
        logger_of(mlflow.active_run()).write(3, {K3: 0.5}, "warn")
    assert mlflow.get_run(run.info.run_id).data.metrics == {K3: 0.5}
