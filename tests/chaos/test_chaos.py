"""The audit finds what is lost, doubled and wrong, and nothing where all is well; a blind control fails."""

import re
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from offpolicy_monitor.summary.step import merge_all
from offpolicy_monitor.summary.stored import from_bytes, to_bytes

from tests.chaos.__main__ import BEGIN, END, PAGE, committed, page_text
from tests.chaos.audit import audit
from tests.chaos.contents import SHARDS, Key, body
from tests.chaos.ledger import Ledger
from tests.chaos.report import notes, row
from tests.chaos.scenario import Outcome
from tests.chaos.scenarios import scenarios
from tests.fixtures.application import started

RUN = "r-0"
WHOLE = [Key(RUN, 0, shard) for shard in (2, 0, 1)]
LAST = Key(RUN, 1, 0)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> tuple[Path, Ledger]:
    """A database with a complete step and a shard of the next one, and the ledger of who posted them."""
    folder, ledger = tmp_path_factory.mktemp("audited"), Ledger()
    with started(folder, migrated_file) as client:
        for key in (*WHOLE, LAST):
            media_type, content = body(key)
            headers = {"Content-Type": media_type}
            answer = client.post(f"/v1/runs/{key.run}/batches", content=content, headers=headers)
            ledger.sent.add(key)
            ledger.acknowledge(key, answer.json()["duplicate"])
    return folder / "offpolicy.db", ledger


@pytest.fixture
def copied(audited: tuple[Path, Ledger], tmp_path: Path) -> tuple[Path, Ledger]:
    """A copy of both, to be tampered with."""
    shutil.copy(audited[0], tmp_path / "copy.db")
    known = audited[1]
    ledger = replace(known, acknowledged=dict(known.acknowledged), firsts=Counter(known.firsts))
    return tmp_path / "copy.db", ledger


def counts(file: Path, ledger: Ledger) -> tuple[int, int, int]:
    found = audit(f"sqlite:///{file}", ledger)
    assert found.acknowledged == len(ledger.acknowledged)
    return len(found.lost), len(found.doubled), len(found.wrong)


def test_nothing_is_found_where_all_is_well(audited: tuple[Path, Ledger]) -> None:
    assert len(audited[1].acknowledged) == SHARDS + 1
    assert counts(*audited) == (0, 0, 0)


@pytest.mark.parametrize(
    ("statements", "found"),
    [
        ("DELETE FROM shards WHERE step = 1; DELETE FROM steps WHERE step = 1", (1, 0, 0)),
        ("DELETE FROM shards WHERE step = 1", (1, 0, 1)),
        ("DELETE FROM steps WHERE step = 1", (0, 0, 1)),
        ("UPDATE shards SET step = 7 WHERE step = 1; UPDATE steps SET step = 7 WHERE step = 1", (1, 0, 1)),
        ("UPDATE shards SET digest = x'00' WHERE shard = 2", (0, 0, 1)),
        ("UPDATE shards SET tokens = tokens + 1 WHERE shard = 2", (0, 0, 1)),
        ("UPDATE steps SET received = 2 WHERE step = 0", (0, 0, 1)),
        ("UPDATE steps SET state = 'open' WHERE step = 0", (0, 0, 1)),
        # Another summary than the step's merge is of, and of other contents than were sent.
        (
            "UPDATE shards SET summary = (SELECT summary FROM shards WHERE shard = 1) WHERE step = 0 AND shard = 2",
            (0, 0, 2),
        ),
    ],
)
def test_what_the_database_lacks_or_holds_otherwise_is_found(
    statements: str, found: tuple[int, int, int], copied: tuple[Path, Ledger]
) -> None:
    with closing(sqlite3.connect(copied[0])) as connection:
        connection.executescript(statements)
    assert counts(*copied) == found


def test_a_step_that_was_merged_in_the_order_of_arrival_is_found(copied: tuple[Path, Ledger]) -> None:
    """It differs by the rounding of sums alone."""
    with closing(sqlite3.connect(copied[0])) as connection:
        query = "SELECT summary FROM shards WHERE step = 0 AND shard = ?"
        parts = [from_bytes(connection.execute(query, (key.shard,)).fetchone()[0]) for key in WHOLE]
        connection.execute("UPDATE steps SET summary = ? WHERE step = 0", (to_bytes(merge_all(parts)),))
        connection.commit()
    assert counts(*copied) == (0, 0, 1)


def test_a_key_that_was_acknowledged_as_new_twice_is_doubled(copied: tuple[Path, Ledger]) -> None:
    file, ledger = copied
    ledger.acknowledge(LAST, duplicate=True)
    assert counts(file, ledger) == (0, 0, 0)
    ledger.acknowledge(LAST, duplicate=False)
    assert counts(file, ledger) == (0, 1, 0)


def test_a_row_fails_by_what_it_finds_and_a_control_by_what_it_does_not() -> None:
    fault = Outcome("kills", "sqlite", trials=3, acknowledged=1200, recovery=[0.4, 1.24, 0.5])
    assert row(fault) == "| kills | SQLite | 3 | 1,200 | 0 | 0 | 0 | 0.5 (at most 1.2) |"
    assert not fault.failed
    lossy = replace(fault, lost=1, found=["Key('r', 1, 0) was acknowledged"])
    assert lossy.failed
    assert list(notes([lossy])) == ["- kills, SQLite: FAILED, Key('r', 1, 0) was acknowledged."]
    assert replace(fault, broken=["too slow"]).failed
    assert replace(fault, acknowledged=0).failed
    assert not replace(lossy, control=True).failed
    assert row(replace(lossy, control=True)).startswith("| control: kills | SQLite |")
    blind = replace(fault, control=True)
    assert blind.failed
    assert list(notes([blind])) == ["- kills, SQLite: FAILED, the audit did not find what was planted."]
    assert not replace(fault, acknowledged=0, skipped="needs strace").failed


def test_scenarios_have_names_of_their_own() -> None:
    names = Counter((row.control, row.name, database) for row in scenarios() for database in row.databases)
    assert names and set(names.values()) == {1}


def test_the_page_has_what_was_committed_and_nothing_of_it_failed() -> None:
    found = committed()
    assert f"{BEGIN}\n{page_text(found)}\n\n{END}" in PAGE.read_text()
    assert [outcome.row for outcome in found if outcome.failed] == []


def test_every_control_of_the_page_is_there_and_every_control_is_on_the_page() -> None:
    _, _, section = PAGE.read_text().partition("### What proves that a check can fail")
    rows = [line for line in section.partition("###")[0].splitlines() if line.startswith("| ")][1:]
    tests, played = set[tuple[str, str]](), set[str]()
    for line in rows:
        found, scenario = re.findall(r"`(tests/\S+)::(test_\w+)`", line), re.findall(r"\*([^*]+)\*", line)
        assert found or scenario, line
        tests, played = tests | set(found), played | set(scenario)
    for file, name in tests:
        assert name in functions_of(file), name
    controls = "tests/chaos/test_controls.py"
    assert {name for file, name in tests if file == controls} == functions_of(controls)
    assert played == {scenario.name for scenario in scenarios() if scenario.control} | {"soak of a service that leaks"}


def functions_of(file: str) -> set[str]:
    return set(re.findall(r"^def (test_\w+)", (PAGE.parents[1] / file).read_text(), re.MULTILINE))


def test_every_fault_of_the_page_is_held_by_tests_and_scenarios_that_there_are() -> None:
    known = {scenario.name for scenario in scenarios() if not scenario.control}
    _, _, matrix = PAGE.read_text().partition("## Every fault")
    rows = [line.split(" | ") for line in matrix.splitlines() if line.startswith("| ")][1:]
    named = set[str]()
    assert len(rows) > 20
    for _, _, held_by in rows:
        tests, played = re.findall(r"`(tests/\S+)::(test_\w+)`", held_by), re.findall(r"\*([^*]+)\*", held_by)
        assert tests or played, held_by
        for file, name in tests:
            assert name in functions_of(file), name
        named |= set(played)
    assert named == known
