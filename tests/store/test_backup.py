"""A backup is the database of one moment, whatever is written meanwhile; a restored one goes on where it was."""

import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from offpolicy_monitor.cli import main
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import Store, migrate
from sqlalchemy import make_url

from tests.fixtures.application import JSON, Client, WarmOnce, batch, json_bytes, running
from tests.fixtures.faults import FailingDisk
from tests.fixtures.postgres import Cluster
from tests.fixtures.service import clean_environment
from tests.fixtures.shards import make_record
from tests.fixtures.tools import require_tool
from tests.store.spoilt import cut, flipped, newer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "backup.md"
POST = "/v1/runs/r1/batches"
#: Shards that are stored in one transaction.
GROUP = 4
ASKED = (
    "/v1/runs", "/v1/runs/r1", "/v1/runs/r1/steps?limit=100", "/v1/runs/r1/steps/2", "/v1/runs/r1/verdict",
    "/v1/runs/r1/series?field=gaps.mismatch.k3&field=tokens", "/v1/runs/r1/rules", "/v1/alerts", "/v1/runs/r1/checks",
)  # fmt: skip
#: What is answered of the moment in which it is asked.
OF_NOW = re.compile(r'"(silent_seconds|now|generated_at)":[^,}]*')


def command_of_the_page(program: str, **variables: str) -> list[str]:
    """The one line of docs/backup.md that begins with this program, its variables put in."""
    [line] = [line for line in PAGE.read_text().splitlines() if line.startswith(f"{program} ")]
    for name, value in variables.items():
        line = line.replace(f'"${name}"', value)
    return [str(require_tool(program)), *line.split()[1:]]


def posted(client: Client, step: int, **changes: Any) -> tuple[int, bool]:
    """Status of a post, and whether it was known."""
    body = json_bytes(**batch(step=step, **changes))
    answer = client.post(POST, content=body, headers=JSON)
    return answer.status_code, answer.json().get("duplicate", False)


def answers(client: Client) -> dict[str, str]:
    found = {path: client.get(path) for path in ASKED}
    assert {answer.status_code for answer in found.values()} == {200}
    return {path: OF_NOW.sub("", answer.text) for path, answer in found.items()}


def serving(url: str) -> Any:
    return running(create_app(Settings(database_url=url, device="cpu", torch_compile=True), WarmOnce.of))


class Sqlite:
    """Backed up and restored by our commands."""

    def __init__(self, folder: Path) -> None:
        self.url, self.restored = (f"sqlite:///{folder / name}.db" for name in ("offpolicy", "restored"))
        self._file = folder / "backup.db"

    def back_up(self) -> None:
        assert main(["db", "backup", str(self._file), "--database-url", self.url]) == 0

    def restore(self) -> None:
        assert main(["db", "restore", str(self._file), "--database-url", self.restored]) == 0


class Postgres:
    """Backed up and restored by the commands of the page."""

    def __init__(self, folder: Path, cluster: Cluster, url: str) -> None:
        self._folder, self.url, self._cluster = folder, url, cluster
        self._name = f"restored_{make_url(url).database}"
        self.restored = cluster.url(self._name)

    def back_up(self) -> None:
        self._run("pg_dump", DATABASE=self.url)

    def restore(self) -> None:
        self._cluster.administer(f"CREATE DATABASE {self._name}")
        self._run("pg_restore", EMPTY=self.restored)

    def drop(self) -> None:
        self._cluster.administer(f"DROP DATABASE IF EXISTS {self._name} WITH (FORCE)")

    def _run(self, program: str, **urls: str) -> None:
        plain = {name: url.replace("+psycopg", "") for name, url in urls.items()}
        subprocess.run(command_of_the_page(program, **plain), cwd=self._folder, check=True)


@pytest.fixture
def sqlite_backup(tmp_path: Path, migrated_copy: None) -> Sqlite:
    return Sqlite(tmp_path)


@pytest.fixture
def postgres_backup(tmp_path: Path, postgres_cluster: Cluster, postgres_url: str, request: Any) -> Postgres:
    made = Postgres(tmp_path, postgres_cluster, postgres_url)
    request.addfinalizer(made.drop)
    return made


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(f"{request.param}_backup")


def test_a_restored_service_answers_every_figure_and_goes_on(kind: Sqlite | Postgres) -> None:
    """Also what the backup does not hold: it is stored when it is posted again."""
    with serving(kind.url) as client:
        assert [posted(client, step, attempt=0) for step in range(3)] == [(200, False)] * 3
        assert posted(client, 2, attempt=1) == (200, False)
        assert posted(client, 3, attempt=1, shards=2, shard=0) == (200, False)
        before = answers(client)
        kind.back_up()
        assert posted(client, 4, attempt=1) == (200, False)
    kind.restore()
    assert migrate.check(kind.restored) == []
    with serving(kind.restored) as client:
        assert answers(client) == before
        assert [posted(client, step, attempt=0)[1] for step in range(2)] == [True, True]
        assert posted(client, 2, attempt=1) == (200, True)
        assert posted(client, 2, attempt=0)[0] == 409
        assert posted(client, 4, attempt=1) == (200, False)
        assert client.get("/v1/runs/r1/steps/3").json()["received_shards"] == 1
        assert posted(client, 3, attempt=1, shards=2, shard=1) == (200, False)
        assert client.get("/v1/runs/r1/steps/3").json()["complete"]
        assert posted(client, 3, attempt=2) == (200, False)


def test_a_backup_that_is_made_while_shards_come_is_of_one_moment(sqlite_url: str, tmp_path: Path) -> None:
    acknowledged, stop = [0], threading.Event()

    def write(store: Store) -> None:
        while not stop.is_set():
            first = acknowledged[0]
            store.ingest([make_record(step) for step in range(first, first + GROUP)])
            acknowledged[0] += GROUP

    with closing(Store.open(sqlite_url)) as store:
        writer = threading.Thread(target=write, args=(store,))
        writer.start()
        try:
            for number in range(4):
                before = acknowledged[0]
                file = tmp_path / f"{number}.db"
                assert main(["db", "backup", str(file), "--database-url", sqlite_url]) == 0
                after = acknowledged[0] + GROUP
                with closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as copy:
                    steps = [step for (step,) in copy.execute("SELECT step FROM steps ORDER BY step")]
                assert steps == list(range(len(steps)))
                assert len(steps) % GROUP == 0
                assert before <= len(steps) <= after
        finally:
            stop.set()
            writer.join()
    assert acknowledged[0] > GROUP


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command says that is refused for its setup."""
    assert main(["db", *arguments]) == 3
    return capsys.readouterr().err


def test_neither_a_backup_nor_a_database_is_ever_overwritten(
    sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, backup, empty = tmp_path / "offpolicy.db", tmp_path / "backup.db", tmp_path / "other" / "new.db"
    in_use, at_empty = ("--database-url", sqlite_url), ("--database-url", f"sqlite:///{empty}")
    kept = file.read_bytes()
    assert "is there already" in told(capsys, "backup", str(file), *in_use)
    assert "there is no backup at" in told(capsys, "restore", str(backup), *at_empty)
    assert "there is no database at" in told(capsys, "backup", str(backup), *at_empty)
    assert not backup.exists()
    assert main(["db", "backup", str(backup), *in_use]) == 0
    copy = backup.read_bytes()
    assert "is there already" in told(capsys, "backup", str(backup), *in_use)
    assert "is there already" in told(capsys, "restore", str(backup), *in_use)
    assert (file.read_bytes(), backup.read_bytes()) == (kept, copy)

    empty.parent.mkdir(exist_ok=True)
    Path(f"{empty}-wal").write_bytes(b"of another database")
    assert "-wal is left of another database: move it away" in told(capsys, "restore", str(backup), *at_empty)
    Path(f"{empty}-wal").unlink()
    assert sorted(path.name for path in empty.parent.iterdir()) == ["new.db.lock"]
    with closing(Store.open(f"sqlite:///{empty}")):
        empty.unlink()  # a service whose database was deleted under it still holds the name
        assert "is being written by another process" in told(capsys, "restore", str(backup), *at_empty)
    assert main(["db", "restore", str(backup), *at_empty]) == 0
    assert migrate.check(at_empty[1]) == []
    assert "pg_dump and pg_restore" in told(
        capsys, "backup", str(tmp_path / "b"), "--database-url", "postgresql://postgres@/none"
    )


def of_another_program(file: Path) -> None:
    file.unlink()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE alembic_versions (a)")


REFUSED: list[tuple[Callable[[Path], object], str]] = [
    (flipped, "is damaged"),
    (cut, "is damaged"),
    (lambda file: file.write_bytes(b"no database " * 999), "is damaged: file is not a database"),
    (lambda file: file.write_bytes(b""), "is no database of offpolicy-monitor"),
    (of_another_program, "is no database of offpolicy-monitor"),
    (newer, "revision 9999, which this version does not know: it was made by a newer one"),
]


def test_what_is_no_whole_backup_of_this_program_is_not_restored(
    sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(Store.open(sqlite_url)) as store:
        store.ingest([make_record(step) for step in range(40)])
    backup, place = tmp_path / "backup.db", tmp_path / "place"
    assert main(["db", "backup", str(backup), "--database-url", sqlite_url]) == 0
    for spoil, reason in REFUSED:
        spoiled = tmp_path / "spoiled.db"
        shutil.copy(backup, spoiled)
        spoil(spoiled)
        bytes_ = spoiled.read_bytes()
        said = told(capsys, "restore", str(spoiled), "--database-url", f"sqlite:///{place / 'new.db'}")
        assert f"{spoiled}" in said and reason in said
        assert [path.name for path in place.iterdir()] == ["new.db.lock"]
        assert spoiled.read_bytes() == bytes_


def test_a_backup_for_which_there_is_no_room_leaves_no_file(
    sqlite_url: str, tmp_path: Path, failing_writes: Path
) -> None:
    disk = FailingDisk(failing_writes, tmp_path / "full")
    disk.folder.mkdir()
    command = [sys.executable, "-m", "offpolicy_monitor.cli", "db", "backup", str(disk.folder / "backup.db")]
    variables = clean_environment() | disk.environment | {"OFFPOLICY_DATABASE_URL": sqlite_url}
    with disk.failing(28):
        ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert ended.returncode == 3
    assert f"the disk of the database {disk.folder / 'backup.db'} is full" in ended.stderr
    assert list(disk.folder.iterdir()) == []
