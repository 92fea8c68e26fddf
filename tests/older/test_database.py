"""A database of f832f41 answers all that it answered then, and takes what comes after it."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, Final

import numpy as np
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import Store, migrate

from tests.fixtures.application import SAFETENSORS, Client, WarmOnce, frame_bytes, running
from tests.fixtures.shards import make_record
from tests.older import trainer
from tests.older.kept import F832F41, answers, assert_kept

KEPT: Final = answers(F832F41)
#: A step that lacks a rank is never too old to be waited for.
PATIENT: Final = 1e9
DAY: Final = 86_400.0
#: As many training steps as keep a summary of their own, and as many as become thin at once in blocks of two.
NEWEST, OLDER = 50, 20


@contextmanager
def serving(url: str) -> Iterator[Client]:
    """Today's service on the database, migrated as `serve` does."""
    migrate.upgrade(url)
    settings = Settings(database_url=url, device="cpu", torch_compile=True, step_timeout=PATIENT)
    with running(create_app(settings, WarmOnce.of)) as client:
        yield client


def posted(client: Client, shard: trainer.Logged, attempt: int = 0, run: str = "raw") -> tuple[int, dict[str, Any]]:
    """Status and answer of a shard that a trainer logs."""
    arrays = {name: value for name, value in shard.items() if isinstance(value, np.ndarray)}
    envelope = {name: value for name, value in shard.items() if name not in arrays} | {"attempt": attempt}
    answer = client.post(f"/v1/runs/{run}/batches", content=frame_bytes(envelope, arrays), headers=SAFETENSORS)
    return answer.status_code, answer.json()


def hypotheses_of(diagnosis: dict[str, Any]) -> dict[str, Any]:
    """What a diagnosis names, and of which steps: its evidence was of last gradient steps alone, and is of all now."""
    found = {row["name"]: {"try": row["try"]} for row in diagnosis["hypotheses"]}
    return {"hypotheses": found, "steps": diagnosis["steps"]}


def test_all_that_was_answered_is_answered_still(old_url: str) -> None:
    with serving(old_url) as client:
        for path, kept in KEPT.items():
            answer = client.get(path)
            assert answer.status_code == 200, path
            if path.endswith("/diagnosis"):
                assert_kept(hypotheses_of(answer.json()), hypotheses_of(kept), path)
            else:
                assert_kept(answer.json(), kept, path)
    assert migrate.check(old_url) == []


def test_what_the_older_service_stored_is_known_when_it_comes_again(old_url: str) -> None:
    with serving(old_url) as client:
        for shards in (trainer.two_ranks(1), trainer.in_phases(2), trainer.incomplete(3)):
            for shard in shards:
                status, answer = posted(client, shard)
                first_half = "rollout" in shard and "logprobs" not in shard
                assert (status, answer["duplicate"]) == (200, not first_half)
        [again] = trainer.replayed(0)
        assert posted(client, again, attempt=1)[1]["duplicate"]
        assert posted(client, again | {"policy_version": 5}, attempt=1)[0] == 409
        assert posted(client, again, attempt=0)[0] == 409


def test_a_run_goes_on_where_the_older_service_left_it(old_url: str) -> None:
    with serving(old_url) as client:
        [before] = client.get("/v1/alerts?run=raw&state=active").json()["alerts"]
        [first_rank] = trainer.incomplete(3)
        status, answer = posted(client, first_rank | {"shard": 1, "policy_version": 5})
        assert (status, answer["complete"], answer["received_shards"]) == (200, True, 2)
        step = client.get("/v1/runs/raw/steps/3").json()
        assert step["gaps"]["mismatch"]["tokens"] == 2 * KEPT["/v1/runs/raw/steps/3?minibatch=0"]["tokens"]
        for shard in trainer.two_ranks(1):
            assert posted(client, shard, attempt=1)[0] == 200
        assert client.get("/v1/runs/raw/steps/1").json()["attempt"] == 1
        assert client.get("/v1/runs/raw/series?field=tokens").json()["step"] == [0, 1, 2, 2, 3]
        [after] = client.get("/v1/alerts?run=raw&state=active").json()["alerts"]
        assert [alert["alert"] for alert in (before, after)] == ["MismatchKL", "MismatchKL"]
        assert [alert["breach_steps"] for alert in (before, after)] == [1, 2]
        assert (after["since_step"], after["last_step"], after["threshold"]) == (0, 1, 1e-9)
        # A later batch reopens what was finished.
        assert client.get("/v1/runs/reduced").json()["state"] == "finished"
        assert posted(client, first_rank, run="reduced")[0] == 200
        assert client.get("/v1/runs/reduced").json()["state"] == "live"


def test_old_steps_keep_their_series_when_they_are_made_small_and_thin(old_url: str) -> None:
    migrate.upgrade(old_url)
    now = time.time()
    with closing(Store.open(old_url)) as store:
        store.ingest([make_record(10 + step, run="raw", received_at=now) for step in range(OLDER + NEWEST)])
    assert_series(old_url, now)
    with closing(Store.open(old_url, partial(float, now + 40 * DAY))) as store:
        assert store.upkeep.tidy(DAY, block_steps=2) > OLDER
        assert store.upkeep.thin(30 * DAY) == OLDER
    assert_series(old_url, now)


def assert_series(url: str, now: float) -> None:
    """The store answers the series that were recorded."""
    with closing(Store.open(url, lambda: now)) as store:
        for path, kept in KEPT.items():
            if path.startswith("/v1/runs/raw/series?field="):
                assert_kept(store.series("raw", kept["field"], None, kept["step"][-1]), kept, path)
