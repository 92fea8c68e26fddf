"""An application with processes beside it answers and stores what one without them does, to the byte."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.pipeline.helpers import pool
from offpolicy_monitor.pipeline.helpers.parcel import Asked, Parcel
from offpolicy_monitor.pipeline.helpers.pool import Helpers
from sqlalchemy import create_engine, text

from tests.fixtures.application import (
    BATCH,
    SAFETENSORS,
    Application,
    Client,
    database,
    frame_bytes,
    good_frame,
    started,
)
from tests.fixtures.fused import cached_pass, loaded_pass
from tests.fixtures.reduced import arrays_of, envelope_of, raw_body, summary_body

RUNS, STEPS, SHARDS = 3, 4, 4
#: Of a reduced shard and of a raw one, arrays that the pass measures alone.
PASS_ALONE = ("sampling_logprobs", "old_logprobs", "logprobs", "mask", "advantages", "policy_versions", "rewards")


class Counted:
    """What the helpers of an application were asked, and what they left to it."""

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.helpers: Helpers = client.app.state.services.pipeline.shards.helpers
        self.seen = Counter[bool]()
        ask = self.helpers.ask

        def counted(asked: Asked) -> Parcel | None:
            parcel = ask(asked)
            self.seen[parcel is not None] += 1
            return parcel

        monkeypatch.setattr(self.helpers, "ask", counted)

    def start(self) -> None:
        for _ in range(pool.MANY):
            assert not self.helpers.want()
        assert self.helpers.keep_up() == 2


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cached_pass()))
    loaded_pass()


@pytest.fixture
def client(application: Application) -> Iterator[Client]:
    with application(measure_processes=2) as running:
        yield running


@pytest.fixture
def counted(client: Client, monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(client, monkeypatch)


def posted(client: Client, bodies: Sequence[tuple[str, bytes]]) -> list[tuple[int, Any]]:
    """The answers to bodies of runs that are posted all at once."""

    async def all_at_once() -> list[Any]:
        ways = (client.http.post(f"/v1/runs/{run}/batches", content=body, headers=SAFETENSORS) for run, body in bodies)
        return await asyncio.gather(*ways)

    return [(answer.status_code, answer.json()) for answer in client.run(all_at_once())]


def bodies(step: int) -> list[tuple[str, bytes]]:
    """The shards of a step of each run: raw and reduced, and one that torch has to look at."""
    found = []
    for run in range(RUNS):
        for shard in range(SHARDS):
            arrays = arrays_of(100 * run + 10 * step + shard)
            narrow = {name: arrays[name] for name in PASS_ALONE}
            envelope = {**envelope_of(shard, SHARDS), "step": step, "minibatches": 1}
            form = (raw_body, summary_body)[shard % 2]
            found.append((f"r{run}", form(envelope, arrays if shard == SHARDS - 2 else narrow)))
    return found


def stored(folder: Path) -> list[tuple[Any, ...]]:
    """Shards and steps as they are stored, but for when."""
    engine = create_engine(database(folder))
    with engine.connect() as connection:
        found = [
            connection.execute(text(f"SELECT name, {columns} JOIN runs ON runs.id = run_id")).all()
            for columns in (
                "step, shard, digest, tokens, sequences, policy_version, summary, dtypes FROM shards",
                "step, summary, figures FROM steps",
            )
        ]
    engine.dispose()
    return sorted(map(tuple, found[0])) + sorted(map(tuple, found[1]))


def test_answers_and_what_is_stored_are_those_of_an_application_without(
    tmp_path: Path, migrated_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        folders = [tmp_path / name for name in ("with", "without")]
        for folder in folders:
            folder.mkdir()
        beside, alone = (
            stack.enter_context(started(folder, migrated_file, measure_processes=most))
            for folder, most in zip(folders, (2, 0), strict=True)
        )
        counted = Counted(beside, monkeypatch)
        for step in range(STEPS):
            if step == 1:
                counted.start()
            answers = [posted(client, bodies(step)) for client in (beside, alone)]
            assert {status for status, _ in answers[0]} == {200}
            for one, other in zip(*answers, strict=True):
                assert untimed(one) == untimed(other)
        assert counted.seen[True] > RUNS * STEPS  # some were alone by then, or came while both were busy
    assert stored(folders[0]) == stored(folders[1])


def untimed(answer: tuple[int, Any]) -> tuple[int, Any]:
    """An answer without how far its step was when it came."""
    status, members = answer
    own = {"received_shards", "complete", "step", "alerts", "verdict", "judged"}
    return status, {name: value for name, value in members.items() if name not in own}


def test_duplicates_conflicts_and_what_is_wrong_are_answered_as_ever(client: Client, counted: Counted) -> None:
    first = posted(client, [("r", good_frame(step=step)) for step in range(4)])
    counted.start()
    again = posted(client, [("r", good_frame(step=step)) for step in range(4)])
    assert [members["duplicate"] for _, members in again] == [True] * 4
    assert [members["gaps"] for _, members in again] == [members["gaps"] for _, members in first]
    mixed = [good_frame(step=9), good_frame(step=9, shards=0), good_frame(step=3, shards=2), b"\xff" * 99]
    answers = posted(client, [("r", body) for body in mixed])
    assert [status for status, _ in answers] == [200, 422, 409, 400]
    assert "shards" in answers[1][1]["detail"]
    assert counted.seen[True]


def test_shards_are_measured_by_the_rows_that_the_run_has_by_then(client: Client, counted: Counted) -> None:
    posted(client, [("r", good_frame(step=1))])
    counted.start()
    rows = {"methods": [{"method": "mask", "gap": "total", "upper": 2.0, "name": "own"}]}
    assert client.request("PATCH", "/v1/runs/r", json=rows).status_code == 200
    answers = posted(client, [("r", good_frame(step=step)) for step in range(2, 10)])
    assert {(status, *members["methods"]) for status, members in answers} == {(200, "own")}


def test_halves_of_shards_are_no_work_of_helpers(client: Client, counted: Counted) -> None:
    posted(client, [("r", good_frame(step=1))])
    counted.start()
    halves = [half(step, name) for name in ("sampling_logprobs", "logprobs") for step in range(2, 6)]
    answers = [*posted(client, halves[:4]), *posted(client, halves[4:])]
    assert [status for status, _ in answers] == [200] * 8
    assert not counted.seen


def half(step: int, logprobs: str) -> tuple[str, bytes]:
    """The half of a shard that has these log-probs."""
    arrays = {"lengths": np.array([3, 2]), logprobs: np.array(BATCH[logprobs], np.float32)}
    return "r", frame_bytes({"step": step, "rollout": f"p{step}"}, arrays)


def test_a_helper_that_dies_loses_no_shard(client: Client, counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    posted(client, [("r", good_frame(step=1))])
    counted.start()
    for helper in counted.helpers._idle:
        helper.line.close()
        object.__setattr__(helper, "line", _Ended())
    answers = posted(client, [("r", good_frame(step=step)) for step in range(2, 10)])
    assert {status for status, _ in answers} == {200}
    assert counted.seen[False] == 2


class _Ended:
    """A line whose other end is closed."""

    def send(self, value: Any) -> None:
        raise EOFError

    def close(self) -> None:
        """Nothing is open."""
