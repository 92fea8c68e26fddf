"""The device runs out of memory, or fails for good, while trainers post: no shard is lost, and figures are the same."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from offpolicy_monitor.batch import UNKNOWN_ORIGIN, Origin, RaggedBatch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.measure.tables import MAKERS, Maker
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.summary.step import StepSummary

from tests.fixtures.application import SAFETENSORS, Client, database, frame_bytes, running
from tests.measure.test_laws import assert_nearly_equal

SEQUENCES, LENGTH, SHARDS = 4, 6_000, 3
#: A device that exists, takes tensors, and fails on every computation.
BROKEN = "meta"


class Cold(Measurer):
    """A device that fails on no batch before the first one that is posted."""

    def warm_up(self) -> None:
        """Nothing."""


class Starved(Cold):
    """A device on which a block of more than 13,000 tokens does not fit."""

    def measure(
        self,
        batch: RaggedBatch,
        rows: Sequence[MethodRow],
        origin: Origin = UNKNOWN_ORIGIN,
        makers: Sequence[Maker] = MAKERS,
        worst: bool = True,
    ) -> StepSummary:
        def needs_memory(view: BlockView) -> dict[str, torch.Tensor]:
            if view.gaps.segments.tokens > 13_000:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return {}

        return super().measure(batch, rows, origin, [*makers, Maker("trial", needs_memory, lambda *_: iter(()))], worst)


def body(shard: int) -> bytes:
    random = np.random.default_rng(shard)
    tokens = SEQUENCES * LENGTH
    old = -random.exponential(1.0, tokens)
    columns = {
        name: (old + scale * random.normal(size=tokens)).astype(np.float32)
        for name, scale in (("sampling_logprobs", 0.1), ("old_logprobs", 0.0), ("logprobs", 0.2))
    }
    arrays = {**columns, "lengths": np.full(SEQUENCES, LENGTH), "advantages": random.normal(size=SEQUENCES)}
    return frame_bytes({"step": 1, "shard": shard, "shards": SHARDS}, arrays)


BODIES = [body(shard) for shard in range(SHARDS)]


def post(client: Client) -> None:
    """All shards at once."""

    async def answers() -> list[Any]:
        url = "/v1/runs/r1/batches"
        return await asyncio.gather(*(client.http.post(url, content=one, headers=SAFETENSORS) for one in BODIES))

    assert [answer.status_code for answer in client.run(answers())] == [200] * SHARDS


def figures_of(measurer: Measurer, folder: Path, template: Path) -> tuple[Any, dict[str, Any], str]:
    """The figures of the step that all shards make, what /readyz says then, and the counter of fallbacks."""
    folder.mkdir()
    (folder / "offpolicy.db").write_bytes(template.read_bytes())
    with running(create_app(Settings(database_url=database(folder)), lambda _: measurer)) as client:
        post(client)
        step = client.get("/v1/runs/r1/steps/1").json()
        lines = client.get("/metrics").text.splitlines()
        counter = next(line for line in lines if line.startswith("offpolicy_device_fallbacks_total"))
        ready = client.get("/readyz")
        assert ready.status_code == 200
        return step, ready.json(), counter.split()[-1]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Any:
    """The figures of the step where no device fails."""
    step, ready, counted = figures_of(Cold("cpu"), tmp_path_factory.mktemp("healthy") / "db", migrated_file)
    assert (counted, "measured_on" in ready) == ("0.0", False)
    return step


@pytest.mark.parametrize(
    ("kind", "device", "blocks", "fallbacks"), [(Cold, BROKEN, 1 << 17, 1), (Starved, "cpu", 1 << 16, SHARDS)]
)
def test_no_shard_is_lost_with_a_device_and_its_figures_are_the_same(
    kind: type[Cold], device: str, blocks: int, fallbacks: int, healthy: Any, tmp_path: Path, migrated_file: Path
) -> None:
    measurer = kind(device)
    measurer.block_tokens = blocks
    step, ready, counted = figures_of(measurer, tmp_path / "db", migrated_file)
    assert_nearly_equal(without_times(step), without_times(healthy))
    assert (ready["measured_on"], ready["device_fallbacks"], float(counted)) == ("cpu", fallbacks, fallbacks)


def test_a_device_that_fails_on_an_evaluation_is_counted_too(tmp_path: Path, migrated_copy: None) -> None:
    with running(create_app(Settings(database_url=database(tmp_path)), lambda _: Cold(BROKEN))) as client:
        assert client.post("/v1/evaluate", content=BODIES[0], headers=SAFETENSORS).status_code == 200
        assert "offpolicy_device_fallbacks_total 1.0" in client.get("/metrics").text
        assert client.get("/readyz").json()["device_fallbacks"] == 1


def without_times(step: Any) -> Any:
    return {name: value for name, value in step.items() if name != "completed_at" and not name.endswith("_at")}
