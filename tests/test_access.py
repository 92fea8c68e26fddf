"""Access tokens: made, proved, told apart; and the commands that make them, list them and take them back."""

import hashlib
import hmac
import inspect
import json
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from offpolicy_monitor.access import compiled, id_in, made, proves
from offpolicy_monitor.cli import main
from offpolicy_monitor.store import Store
from offpolicy_monitor.store import access as book
from offpolicy_monitor.store.rows.access import seen_by
from offpolicy_monitor.store.rows.tables import runs
from offpolicy_monitor.store.session import Database, parse_url
from sqlalchemy import select

from tests.fixtures.logs import restored_logs
from tests.fixtures.shards import make_record


def test_a_token_is_proved_by_its_own_text_alone() -> None:
    (token, text), (other, of_other) = (made(["read"], "*", "", 5.0) for _ in range(2))
    prefix, name, secret = text.split("_")
    assert (prefix, name, len(secret)) == ("opm", token.id, 48)
    assert token.digest == hashlib.sha256(secret.encode()).digest()
    assert proves(text, token) and proves(of_other, other) and id_in(text) == token.id
    wrong = [
        of_other,
        f"opm_{other.id}_{secret}",
        text[:-1],
        f"{text}0",
        text.upper(),
        f" {text}",
        secret,
        "",
        "\ud800",
    ]
    assert not any(proves(one, token) for one in wrong)
    assert not proves(text, None) and id_in(secret) is None


def test_secrets_are_compared_in_constant_time_also_where_there_is_no_such_token() -> None:
    (token, text), (_, other) = (made(["read"], "*", "", 5.0) for _ in range(2))
    compared = list[tuple[int, int]]()

    def equal(sent: bytes, kept: bytes) -> bool:
        compared.append((len(sent), len(kept)))
        return sent == kept

    assert inspect.signature(proves).parameters["equal"].default is hmac.compare_digest
    assert [proves(text, token, equal), proves(other, token, equal), proves(text, None, equal)] == [True, False, False]
    assert compared == [(32, 32)] * 3


@pytest.mark.parametrize(
    ("pattern", "seen", "unseen"),
    [
        ("*", ["a", "A.b-c_d"], []),
        ("llama-*", ["llama-", "llama-7b.1"], ["Llama-7b", "my-llama-7b"]),
        ("r?.x", ["r1.x"], ["r.x", "r12.x", "r1_x"]),
        ("a_b", ["a_b"], ["axb", "a_b2"]),
    ],
)
def test_a_pattern_names_the_same_runs_in_python_and_in_the_database(
    database_url: str, pattern: str, seen: list[str], unseen: list[str]
) -> None:
    with closing(Store.open(database_url)) as store:
        store.ingest([make_record(0, run=name) for name in (*seen, *unseen)])
    with closing(Database(parse_url(database_url))) as database, database.reading() as connection:
        found = connection.scalars(select(runs.c.name).where(*seen_by(pattern))).all()
    assert sorted(found) == sorted(seen)
    assert [name for name in (*seen, *unseen) if compiled(pattern).fullmatch(name)] == seen


def test_what_a_token_may_and_until_when() -> None:
    token, _ = made(["read"], "*", "", 100.0, expires_at=200.0)
    assert [token.state(now) for now in (100.0, 199.9, 200.0)] == ["valid", "valid", "expired"]
    assert token.has(["read", "ingest"]) and not token.has(["ingest"]) and not token.has(["admin"])
    admin, _ = made(["admin"], "*", "", 100.0)
    assert admin.has(["read"]) and admin.has(["ingest"]) and admin.state(1e12) == "valid"


def test_tokens_are_kept_listed_revoked_and_remember_their_last_use(database_url: str) -> None:
    token, text = made(["read", "ingest"], "llama-*", "cluster A", 10.0, 99.0)
    assert book.enter(database_url, token) and not book.enter(database_url, made(["admin"], "*", "", 11.0)[0])
    with closing(Store.open(database_url)) as store:
        first, second = store.access_tokens()
        assert first == token and proves(text, first) and second.scopes == {"admin"}
        store.note_use({token.id: 50.0, second.id: 51.0})
        store.note_use({token.id: 40.0})
        assert [one.last_used_at for one in store.access_tokens()] == [50.0, 51.0]
        # Beside a service, which holds the right to write to a SQLite file.
        assert book.revoke(database_url, [token.id, "unknown"], 60.0) == [token.id]
        assert book.revoke(database_url, [token.id], 70.0) == [token.id]
        assert [one.revoked_at for one in store.access_tokens()] == [60.0, None]
        assert store.access_tokens()[0].state(98.0) == "revoked"


@pytest.fixture
def run(
    tmp_path: Path, migrated_copy: None, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """Runs a subcommand of token: status, stdout, stderr."""

    def run_one(command: str, *arguments: str) -> tuple[int, str, str]:
        try:
            status = main(["token", command, "--database-url", f"sqlite:///{tmp_path / 'offpolicy.db'}", *arguments])
        except SystemExit as end:
            status = int(str(end.code))
        said = capsys.readouterr()
        return status, said.out, said.err

    with restored_logs():
        yield run_one


def listed(run: Callable[..., tuple[int, str, str]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("list", "--json")[1])
    return found


def test_create_prints_the_token_once_and_says_what_the_first_one_changes(run: Callable[..., Any]) -> None:
    status, out, err = run("create", "--scope", "ingest", "--scope", "read", "--run", "a-*", "--note", "me")
    name, secret = out.strip().split("_")[1:]
    assert status == 0 and out.startswith("opm_") and "OFFPOLICY_AUTH" in err and name in err
    [row] = listed(run)
    assert (row["id"], row["state"], row["runs"], row["note"]) == (name, "valid", "a-*", "me")
    assert (row["scopes"], row["expires_at"]) == (["ingest", "read"], None)
    _, table, _ = run("list")
    assert name in table and secret not in table + err
    status, out, err = run("create", "--scope", "admin", "--expires", "30d", "--json")
    made_one = json.loads(out)
    assert made_one["token"].startswith(f"opm_{made_one['id']}_") and "OFFPOLICY_AUTH" not in err
    assert made_one["expires_at"] > made_one["created_at"]


def test_create_keeps_a_valid_token_in_its_file_and_replaces_any_other(run: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "new" / "token"
    made_one = run("create", "--scope", "read", "--file", str(file))
    text = file.read_text().strip()
    assert made_one[0] == 0 and text not in made_one[1] + made_one[2] and text.startswith("opm_")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    run("create", "--scope", "read", "--file", str(file))
    assert file.read_text().strip() == text and len(listed(run)) == 1
    run("create", "--scope", "admin", "--file", str(file))  # it has no such scope
    admin = file.read_text().strip()
    assert admin != text and len(listed(run)) == 2
    assert run("revoke", admin)[0] == 0
    run("create", "--scope", "admin", "--file", str(file))
    assert file.read_text().strip() not in (admin, text)
    assert run("create", "--scope", "admin", "--file", "/proc/none")[0] == 3


def test_revoke_names_what_there_is_not(run: Callable[..., Any]) -> None:
    text = run("create", "--scope", "read")[1].strip()
    status, out, err = run("revoke", "000000000000", text)
    assert (status, out) == (1, f"{id_in(text)} is revoked\n")
    assert "there is no token 000000000000" in err and text not in out + err
    assert listed(run)[0]["state"] == "revoked"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--scope"),
        (["--scope", "root"], "--scope"),
        (["--scope", "read", "--run", "a/b"], "--run"),
        (["--scope", "read", "--run", ""], "--run"),
        (["--scope", "read", "--expires", "2020-01-01"], "is over"),
        (["--scope", "read", "--expires", "soon"], "neither"),
        (["--scope", "read", "--note", "a\nb"], "--note"),
    ],
)
def test_create_refuses_what_it_cannot_read(run: Callable[..., Any], arguments: list[str], named: str) -> None:
    status, _, err = run("create", *arguments)
    assert status == 2 and named in err and listed(run) == []
