"""Room that rows have left is given back: in pieces beside the service, and all of it by `db vacuum`."""

import re
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from offpolicy_monitor.cli import main
from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.store import Store, space
from offpolicy_monitor.store.session import Database, parse_url
from sqlalchemy import text

from tests.fixtures.shards import make_record


def fill(store: Store, steps: int) -> None:
    for step in range(steps):
        store.ingest([make_record(step, shard, 4) for shard in range(4)])


def pragma(url: str, name: str) -> int:
    database = Database(parse_url(url))
    with database.reading() as connection:
        found = int(connection.execute(text(f"PRAGMA {name}")).scalar_one())
    database.close()
    return found


def test_a_file_shrinks_in_pieces_after_a_run_was_deleted(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "PORTION", 16)
    monkeypatch.setattr(space, "SPARE", 32)
    monkeypatch.setattr(space, "SECONDS", 60.0)
    store = Store.open(sqlite_url)
    empty = pragma(sqlite_url, "page_count")
    fill(store, 150)
    full = pragma(sqlite_url, "page_count")
    assert store.upkeep.give_back() == 0
    store.delete_run("r1")
    store.upkeep.purge()
    pages: list[int] = []

    def turn(work: Callable[[], int]) -> int:
        found = work()
        pages.append(pragma(sqlite_url, "page_count"))
        return found

    assert 3 < store.upkeep.give_back(turn) <= full / 16
    assert all(15 <= before - after <= 17 for before, after in pairwise(pages[:-1]))
    left = empty + space.SPARE + space.PORTION
    assert pragma(sqlite_url, "page_count") <= left < full / 1.5
    store.close()
    assert (tmp_path / "offpolicy.db").stat().st_size <= left * 4096


def test_a_piece_ends_when_its_time_is_up_however_few_pages_it_is(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "PORTION", 16)
    monkeypatch.setattr(space, "SPARE", 32)
    monkeypatch.setattr(space, "SECONDS", 0.0)
    with closing(Store.open(sqlite_url)) as store:
        fill(store, 60)
        store.delete_run("r1")
        store.upkeep.purge()
        before = pragma(sqlite_url, "page_count")
        pieces = store.upkeep.give_back()
        assert pieces > 10
        assert before - pragma(sqlite_url, "page_count") == pieces


def test_vacuum_leaves_the_data_and_no_free_page(store: Store, database_url: str) -> None:
    fill(store, 60)
    store.ingest([make_record(run="other")])
    store.delete_run("r1")
    store.upkeep.purge()
    store.close()
    assert main(["db", "vacuum", "--full", "--database-url", database_url]) == 0
    assert main(["db", "vacuum", "--database-url", database_url]) == 0
    again = Store.open(database_url)
    assert [run["run"] for run in again.runs().rows] == ["other"]
    again.close()
    if database_url.startswith("sqlite"):
        assert (pragma(database_url, "freelist_count"), pragma(database_url, "auto_vacuum")) == (0, 2)


def test_vacuum_says_how_much_is_left(sqlite_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["db", "vacuum", "--database-url", sqlite_url]) == 0
    assert re.fullmatch(r"sqlite:///.* takes 0\.[1-9] MB\n", capsys.readouterr().out)


def test_a_file_that_a_service_writes_is_not_vacuumed(sqlite_url: str) -> None:
    store = Store.open(sqlite_url)
    with pytest.raises(ConfigurationError, match="another process"):
        space.vacuum(sqlite_url)
    store.close()


def test_a_file_of_an_older_program_learns_to_shrink_by_vacuum(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    database = Database(parse_url(url), bounded=False)
    with database.plain() as connection:
        for statement in ("CREATE TABLE t (x)", "PRAGMA auto_vacuum = NONE", "VACUUM"):
            connection.execute(text(statement))
    database.close()
    assert pragma(url, "auto_vacuum") == 0
    space.vacuum(url)
    assert pragma(url, "auto_vacuum") == 2
