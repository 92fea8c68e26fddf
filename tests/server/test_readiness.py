"""/readyz says 503, and why, while no shard could be stored; no shard is acknowledged into a file that is gone."""

import asyncio
import gc
import json
import shutil
import sqlite3
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.pipeline.shards import Work
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.server.probe import SLOW, WITHIN, StoreProbe
from offpolicy_monitor.settings import Settings

from tests.fixtures.application import JSON, Application, Client, json_bytes, rows, running
from tests.fixtures.faults import FailingDisk
from tests.fixtures.postgres import Cluster
from tests.fixtures.prometheus import wait_for
from tests.fixtures.service import running_service

URL = "/v1/runs/r1/batches"
PATIENCE = 60.0  # seconds


def posted(client: Client, step: int) -> tuple[int, str]:
    answer = client.post(URL, content=json_bytes(step=step), headers=JSON)
    return answer.status_code, answer.text


def told(ask: Callable[[], tuple[int, Any]]) -> tuple[int, Any]:
    """What /readyz says after the second for which its last answer is told again.

    Asked anew where a busy machine had found nothing out in time.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        time.sleep(1.1)
        status, answer = ask()
        if answer.get("reason") != SLOW.format(WITHIN) or time.monotonic() > deadline:
            return status, answer


def readiness(client: Client) -> tuple[int, str]:
    def ask() -> tuple[int, Any]:
        answer = client.get("/readyz")
        return answer.status_code, answer.json()

    status, answer = told(ask)
    return status, answer.get("reason", "")


def ready_again(client: Client) -> bool:
    """Within the ten seconds for which a failed write counts."""
    return any(readiness(client)[0] == 200 for _ in range(12))


def stored_steps(file: Path) -> list[int]:
    """What is in the database itself, its log left out."""
    with closing(sqlite3.connect(f"file:{file}?immutable=1", uri=True)) as connection:
        return [step for (step,) in connection.execute("SELECT step FROM shards ORDER BY step")]


def test_a_ready_service_is_not_changed_by_being_asked(client: Client, tmp_path: Path) -> None:
    assert posted(client, 1)[0] == 200
    before = rows(tmp_path)
    assert [readiness(client) for _ in range(3)] == [(200, "")] * 3
    assert rows(tmp_path) == before
    with closing(sqlite3.connect(tmp_path / "offpolicy.db")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] >= 2


def test_no_shard_is_acknowledged_into_a_deleted_database_file(client: Client, tmp_path: Path) -> None:
    assert posted(client, 1)[0] == 200
    file = tmp_path / "offpolicy.db"
    file.rename(tmp_path / "away.db")
    status, problem = posted(client, 2)
    assert status == 503
    assert f"{file} was deleted while it was open" in problem
    assert readiness(client)[0] == 503
    assert f"{file} was deleted" in readiness(client)[1]
    assert not file.exists()
    (tmp_path / "away.db").rename(file)
    assert posted(client, 3)[0] == 200
    assert ready_again(client)


def test_nothing_of_a_shard_that_could_not_be_stored_waits_for_the_collector_of_garbage(
    client: Client, tmp_path: Path
) -> None:
    """While a database is away there are many of them, each with its body and what was measured."""
    assert posted(client, 1)[0] == 200
    (tmp_path / "offpolicy.db").rename(tmp_path / "away.db")
    gc.collect()
    gc.disable()
    try:
        assert [posted(client, step)[0] for step in range(2, 12)] == [503] * 10
        # A request that was answered may still be at its end.
        wait_for(lambda: not any(isinstance(found, Work) for found in gc.get_objects()))
    finally:
        gc.enable()


def test_no_shard_is_acknowledged_into_a_database_file_that_was_replaced(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "offpolicy.db"
    shutil.copy(file, tmp_path / "backup.db")
    assert posted(client, 1)[0] == 200
    (tmp_path / "backup.db").replace(file)
    for step in (2, 3):
        status, problem = posted(client, step)
        assert status == 503
        assert "was replaced by another file" in problem
    assert "was replaced" in readiness(client)[1]


def test_a_file_that_is_deleted_during_the_commit_is_noticed_before_the_answer(
    application: Application, tmp_path: Path
) -> None:
    """The connection that commits deletes the file: it was there when the transaction began."""
    with application() as client:
        assert posted(client, 1)[0] == 200
        [kept] = client.app.state.services.store._database._writers._kept

        def delete(statement: str) -> None:
            if statement == "COMMIT":
                (tmp_path / "offpolicy.db").unlink()

        kept.connection.driver_connection.set_trace_callback(delete)
        status, problem = posted(client, 2)
    assert status == 503
    assert "was deleted" in problem


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_of_a_deleted_log_everything_acknowledged_is_kept(client: Client, tmp_path: Path, suffix: str) -> None:
    acknowledged = [step for step in range(5) if posted(client, step)[0] == 200]
    file = tmp_path / "offpolicy.db"
    assert acknowledged == [0, 1, 2, 3, 4]
    assert stored_steps(file) == []
    Path(f"{file}{suffix}").unlink()
    # What is told may be of a second ago, and was found by a write of a second before.
    assert any("was deleted" in readiness(client)[1] for _ in range(3))
    assert posted(client, 9)[0] == 503
    assert stored_steps(file) == acknowledged


def test_a_lock_of_another_program_is_told(client: Client, tmp_path: Path) -> None:
    assert posted(client, 1)[0] == 200
    with closing(sqlite3.connect(tmp_path / "offpolicy.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        status, reason = readiness(client)
        assert (status, "locked" in reason) == (503, True), reason
    assert readiness(client)[0] == 200


def test_a_damaged_file_is_told(client: Client, tmp_path: Path) -> None:
    for step in range(40):
        assert posted(client, step)[0] == 200
    file = tmp_path / "offpolicy.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert readiness(client)[0] == 200
    with file.open("r+b") as raw:
        raw.write(b"no database " * 1000)
    status, reason = readiness(client)
    assert (status, "is damaged" in reason, str(file) in reason) == (503, True, True), reason


@pytest.fixture(scope="module")
def on_a_disk(tmp_path_factory: pytest.TempPathFactory, failing_writes: Path) -> Iterator[tuple[str, FailingDisk]]:
    """The URL of a service, and its disk."""
    disk = FailingDisk(failing_writes, tmp_path_factory.mktemp("disk"))
    with running_service(disk.folder, **disk.environment) as url:
        yield url, disk


@pytest.mark.parametrize(("number", "status"), [(28, 507), (122, 507), (5, 503)])
def test_a_disk_that_fails_is_told_before_any_shard_meets_it(
    on_a_disk: tuple[str, FailingDisk], number: int, status: int
) -> None:
    url, disk = on_a_disk
    assert told(lambda: got(f"{url}/readyz"))[0] == 200
    with disk.failing(number):
        code, answer = told(lambda: got(f"{url}/readyz"))
        assert (code, answer["checks"]["store"]) == (503, False)
        assert ("full" in answer["reason"]) == (status == 507)
        assert got(url + URL, json_bytes(step=number))[0] == status
        assert got(f"{url}/readyz")[0] == 503
    wait_until_ready(url)
    assert got(url + URL, json_bytes(step=number))[0] == 200


def wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while got(f"{url}/readyz")[0] != 200:
        assert time.monotonic() < deadline
        time.sleep(0.5)


def got(url: str, body: bytes | None = None) -> tuple[int, Any]:
    request = urllib.request.Request(url, body, JSON)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@contextmanager
def read_only(url: str, cluster: Cluster) -> Iterator[None]:
    name = url.rpartition("/")[2].partition("?")[0]
    end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    cluster.administer(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        cluster.administer(end)
        time.sleep(0.2)  # one that was about to connect knows of no change, and is listed only when it has
        cluster.administer(end)
        yield
    finally:
        cluster.administer(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        cluster.administer(end)


def test_a_postgres_that_takes_no_writes_is_told(postgres_url: str, postgres_cluster: Cluster) -> None:
    with running(create_app(Settings(database_url=postgres_url, device="cpu"))) as client:
        assert posted(client, 1)[0] == 200
        with read_only(postgres_url, postgres_cluster):
            status, reason = readiness(client)
            assert (status, "read-only" in reason) == (503, True)
        assert ready_again(client)


class Asked:
    """A store that counts how often it is asked, and hangs while it is shut."""

    def __init__(self) -> None:
        self.times = 0
        self.open = threading.Event()
        self.open.set()
        self.error: Exception | None = None

    def ping(self) -> None:
        self.times += 1
        self.open.wait(20)

    def schema_is_current(self) -> bool:
        return True

    def try_writing(self) -> None:
        if self.error is not None:
            raise self.error


def test_the_store_is_asked_once_per_second_however_many_ask() -> None:
    async def scenario() -> None:
        store = Asked()
        probe = StoreProbe(store)
        findings = await asyncio.gather(*(probe.finding() for _ in range(50)))
        assert all(all(finding.checks.values()) for finding in findings)
        assert store.times == 1
        await asyncio.sleep(1.1)
        await probe.finding()
        assert store.times == 2
        probe.close()

    asyncio.run(scenario())


def test_whoever_asks_while_the_store_hangs_is_told_in_time_and_no_thread_more_hangs() -> None:
    async def scenario() -> None:
        store = Asked()
        store.open.clear()
        probe = StoreProbe(store, within=0.2)
        began = time.monotonic()
        findings = [await probe.finding() for _ in range(5)]
        assert time.monotonic() - began < 10
        assert {finding.reason for finding in findings} == {"the database did not answer within 0.2 s"}
        assert not any(finding.checks["store"] for finding in findings)
        assert store.times == 1
        store.open.set()
        while (await probe.finding()).reason:
            await asyncio.sleep(0.05)
        probe.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [Unavailable(507, "storage-full", "the disk is full"), ValueError("a defect")])
def test_what_the_store_says_is_the_reason_and_a_defect_is_one_too(error: Exception) -> None:
    async def scenario() -> None:
        store = Asked()
        store.error = error
        probe = StoreProbe(store)
        finding = await probe.finding()
        assert finding.checks == {"store": False, "schema": False}
        assert finding.reason == ("the disk is full" if isinstance(error, Unavailable) else "a defect: ValueError")
        probe.close()

    asyncio.run(scenario())
