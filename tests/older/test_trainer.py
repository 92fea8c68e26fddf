"""A trainer with f832f41's client, raw or reducing, goes on posting when the service is today's."""

import json
import os
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from offpolicy_monitor.wire.frame import MEDIA_TYPE

from tests.fixtures.service import running_service
from tests.older import trainer
from tests.older.kept import F832F41, TRAINER, answers, assert_kept, unpack_client, unpack_database
from tests.wire.bodies import frame_body

#: A run that the older service stored, and runs of the same data that begin now.
STORED: Final = "raw"
OLD: Final = ("old-raw", "old-reduced:reduced")
NEW: Final = ("new-raw", "new-reduced:reduced")
STEPS: Final = ("0?minibatch=0", "1?minibatch=0", "2?minibatch=0", "2?minibatch=1", "3?minibatch=0")
#: float32 sums in another order.
CLOSE: Final = {"relative": 1e-5, "absolute": 1e-6}
Stats = dict[str, Any]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Today's service, started on the database of the older one."""
    folder = tmp_path_factory.mktemp("service")
    unpack_database(F832F41, folder / "service.db")
    with running_service(folder, OFFPOLICY_DEVICE="cpu", OFFPOLICY_STEP_TIMEOUT="1e9") as url:
        yield url


@pytest.fixture(scope="module")
def old(url: str, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Stats]]:
    """What became of the shards that the older client logged, by run and attempt."""
    folder = tmp_path_factory.mktemp("client")
    unpack_client(F832F41, folder)
    done = subprocess.run(
        [sys.executable, str(TRAINER), url, STORED, *OLD],
        env=os.environ | {"PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        check=True,
        timeout=300,
    )
    found: Mapping[str, list[Stats]] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def new(url: str) -> Mapping[str, list[Stats]]:
    """The same of today's client."""
    return {run: trainer.train(url, run) for run in NEW}


def step_of(url: str, run: str, step: str) -> Any:
    with urllib.request.urlopen(f"{url}/v1/runs/{run}/steps/{step}", timeout=60) as answer:
        return json.load(answer)


def test_everything_that_an_older_client_logs_is_stored(old: Mapping[str, list[Stats]]) -> None:
    for run in OLD:
        for stats in old[run]:
            assert stats["sent"] == stats["logged"] > stats["duplicates"] == 0, stats


def test_what_it_had_posted_before_the_service_was_upgraded_is_a_duplicate(old: Mapping[str, list[Stats]]) -> None:
    before, after = old[STORED]
    # The step that was replayed is taken from its newest attempt alone.
    assert before["errors_by"] == {"409": 1}
    assert before["duplicates"] == 5
    assert after["duplicates"] == after["logged"] == 1


def test_a_shard_that_it_had_reduced_and_posted_before_is_a_duplicate(url: str, tmp_path: Path) -> None:
    """As the older service kept it, to the bit: what the client makes of the data today depends on the processor."""
    unpack_database(F832F41, tmp_path / "older.db")
    with closing(sqlite3.connect(tmp_path / "older.db")) as connection:
        query = "SELECT summary FROM shards JOIN runs ON runs.id = run_id WHERE name = 'reduced' AND attempt = 1"
        [(summary,)] = connection.execute(query)
    envelope = {"step": 0, "minibatch": 0, "minibatches": 1, "shard": 0, "shards": 1, "policy_version": 4, "attempt": 1}
    assert post(url, envelope, summary)["duplicate"]
    with pytest.raises(urllib.error.HTTPError, match="409"):
        post(url, envelope | {"policy_version": 5}, summary)


def post(url: str, envelope: Mapping[str, Any], summary: bytes) -> Any:
    """The answer to a reduced shard of the run."""
    body = frame_body(envelope, summary=np.frombuffer(summary, np.uint8))
    headers = {"Content-Type": MEDIA_TYPE}
    request = urllib.request.Request(f"{url}/v1/runs/reduced/batches", body, headers, method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("run", ["old-raw", "old-reduced"])
def test_its_steps_have_the_figures_of_the_older_service(
    url: str, old: Mapping[str, list[Stats]], run: str, step: str
) -> None:
    assert_kept(step_of(url, run, step), answers(F832F41)[f"/v1/runs/raw/steps/{step}"], run, **CLOSE)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("form", ["raw", "reduced"])
def test_its_steps_are_those_of_todays_client(
    url: str, old: Mapping[str, list[Stats]], new: Mapping[str, list[Stats]], form: str, step: str
) -> None:
    assert all(stats["sent"] == stats["logged"] for run in NEW for stats in new[run])
    assert_kept(step_of(url, f"new-{form}", step), step_of(url, f"old-{form}", step), form, **CLOSE)
