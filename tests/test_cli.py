"""The command line: help without the server's libraries, exit statuses, what it prints."""

import importlib.util
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from offpolicy_monitor import __version__, cli
from offpolicy_monitor.cli import COMMANDS, main
from offpolicy_monitor.cli.database import DB_COMMANDS
from offpolicy_monitor.cli.exports import EXPORT_COMMANDS
from offpolicy_monitor.cli.tokens import TOKEN_COMMANDS
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import migrate

from tests.fixtures.forks import Fork, forks
from tests.fixtures.logs import restored_logs
from tests.fixtures.service import DEFAULTS, clean_environment, free_port

WITHOUT_LIBRARIES = """
import sys
for name in {missing!r}:
    sys.modules[name] = None
from offpolicy_monitor.cli import main
sys.exit(main(sys.argv[1:]))
"""
SERVER_LIBRARIES = [
    "alembic", "fastapi", "jinja2", "orjson", "prometheus_client", "pydantic", "pydantic_settings", "sqlalchemy",
    "structlog", "torch", "uvicorn", "uvloop", "xxhash", "zstandard",
]  # fmt: skip
SHOWN = 7  # lines of a service that serves
PREFIX = "/of-this-test"  # of a service's address
HELPS = [
    [],
    *([command.name] for command in COMMANDS),
    *(["db", command.name] for command in DB_COMMANDS),
    *(["export", command.name] for command in EXPORT_COMMANDS),
    *(["token", command.name] for command in TOKEN_COMMANDS),
]


@pytest.fixture(autouse=True)
def logs() -> Iterator[None]:
    """Some commands configure them, which here is the process of every later test."""
    with restored_logs():
        yield


def base_install(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command where numpy is the only library."""
    code = WITHOUT_LIBRARIES.format(missing=SERVER_LIBRARIES)
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_the_package_says_its_subcommands_in_order_and_where_each_stands() -> None:
    said = re.sub(r",\n *", ", ", (cli.__doc__ or "").split("\n\n")[1])
    rows = [re.split(r" {2,}", line.strip()) for line in said.splitlines()]
    assert [name for names, _ in rows for name in names.split(", ")] == [command.name for command in COMMANDS]
    for _, modules in rows:
        for module in modules.split(", "):
            assert importlib.util.find_spec(f"offpolicy_monitor.{module}") is not None, module


@pytest.mark.parametrize("command", HELPS, ids=" ".join)
def test_help_has_examples_and_exit_statuses(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert "Exit status: 0 done" in shown
    assert not command or f"examples:\n  offpolicy-monitor {' '.join(command)}" in shown


def test_the_base_install_prints_help_and_version() -> None:
    for arguments in (["--help"], ["serve", "--help"], ["demo", "--help"], ["--version"], ["version"]):
        ended = base_install(*arguments)
        assert (ended.returncode, ended.stderr) == (0, ""), arguments


def test_the_base_install_asks_a_service() -> None:
    ended = base_install("runs", "--url", f"http://127.0.0.1:{free_port()}")
    assert ended.returncode == 1
    assert ended.stderr.startswith("offpolicy-monitor: no service answers at http://127.0.0.1:")


@pytest.mark.parametrize(
    "arguments", [["serve"], ["report", "r1"], ["db", "upgrade"], ["db", "check"], ["methods"], ["settings"]]
)
def test_a_missing_library_is_named_with_its_extra(arguments: list[str]) -> None:
    ended = base_install(*arguments)
    assert ended.returncode == 3
    assert "is not installed: pip install 'offpolicy-monitor[server]'" in ended.stderr
    assert "Traceback" not in ended.stderr


def interrupted(arguments: list[str], log: Path, until: Callable[[Fork], object]) -> tuple[int, str]:
    """A command that is sent SIGINT once `until` has returned: its exit status, and what it says."""
    with log.open("wb") as lines:
        running = forks().start(arguments, clean_environment() | DEFAULTS, lines)
    try:
        until(running)
        running.send_signal(signal.SIGINT)
        return running.wait(60), log.read_text()
    finally:
        running.kill()


def asked(silent: socket.socket) -> socket.socket:
    """The first connection whose request names PREFIX.

    A client of another test may still look for the service that had this port before.
    """
    while True:
        connection = silent.accept()[0]
        connection.settimeout(silent.gettimeout())
        with suppress(ConnectionResetError):
            if PREFIX.encode() in connection.recv(4096):
                return connection
        connection.close()


@pytest.mark.parametrize(
    "command",
    [["runs"], ["show", "r"], ["alerts"], ["diagnose", "r"], ["doctor", "--run", "r"], ["whatif", "r"],
     ["report", "r"], ["demo"], ["replay", "{dump}", "--run", "r"],
     ["tail", "{folder}", "--format", "jsonl", "--run", "r"]],
    ids=lambda command: command[0],
)  # fmt: skip
def test_ctrl_c_ends_a_command_that_waits_for_a_service_quietly(command: list[str], tmp_path: Path) -> None:
    dump = tmp_path / "a.jsonl"
    dump.write_text(json.dumps({"step": 0, "sampling_logprobs": [[-1.0]], "old_logprobs": [[-1.0]]}) + "\n")
    with socket.create_server(("127.0.0.1", 0)) as silent, ExitStack() as held:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}{PREFIX}"
        arguments = [word.format(dump=dump, folder=tmp_path) for word in command]
        silent.settimeout(60)
        log = tmp_path / "log"
        status, said = interrupted([*arguments, "--url", url], log, lambda _: held.enter_context(asked(silent)))
    assert status == 130
    assert "Traceback" not in said and "Error" not in said


def test_ctrl_c_ends_the_service_in_order(tmp_path: Path) -> None:
    arguments = ["serve", "--port", "0", "--database-url", f"sqlite:///{tmp_path / 'x.db'}"]
    log = tmp_path / "log"
    status, said = interrupted(arguments, log, lambda running: said_by(running, log))
    assert status == 130
    assert "Traceback" not in said


@pytest.mark.parametrize("command", ["--help", "serve --help", "methods", "settings --json", "version"])
def test_a_reader_that_has_seen_enough_is_no_failure(command: str) -> None:
    line = f"{sys.executable} -m offpolicy_monitor.cli {command} | true; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("0\n", "")


def test_lists_fit_a_narrow_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for command in ("methods", "settings"):
        assert main([command]) == 0
        assert max(map(len, capsys.readouterr().out.splitlines())) <= 100, command


def test_a_wrong_command_line_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serf"])
    assert ended.value.code == 2
    assert "serf" in capsys.readouterr().err


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_methods_lists_every_preset_as_a_table_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    names = [row.name for row in PRESETS]
    assert main(["methods"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table] == ["name", *names]
    assert main(["methods", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == names


def test_settings_lists_every_setting_with_the_value_in_force(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFPOLICY_PORT", "9001")
    monkeypatch.setenv("OFFPOLICY_DATABASE_URL", "postgresql://user:secret@host/offpolicy")
    assert main(["settings", "--json"]) == 0
    shown = capsys.readouterr().out
    rows = {row["variable"]: row for row in json.loads(shown)}
    assert set(rows) == {Settings.variable(name) for name in Settings.model_fields}
    assert rows["OFFPOLICY_PORT"]["value"] == 9001
    assert all(row["meaning"] for row in rows.values())
    assert "secret" not in shown


def test_a_wrong_setting_is_named_and_status_3(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFPOLICY_PORT", "many")
    assert main(["settings"]) == 3
    assert "OFFPOLICY_PORT" in capsys.readouterr().err


def test_db_check_says_no_until_db_upgrade(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    assert main(["db", "check", "--database-url", url]) == 1
    assert "offpolicy-monitor db upgrade" in capsys.readouterr().out
    assert main(["db", "upgrade", "--database-url", url]) == 0
    assert migrate.head() in capsys.readouterr().out
    assert main(["db", "check", "--database-url", url]) == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.com"])
def test_an_address_that_others_can_reach_is_refused_without_insecure(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["serve", "--host", host, "--database-url", f"sqlite:///{tmp_path / 'x.db'}"]
    assert main(arguments) == 3
    assert "--insecure" in capsys.readouterr().err


def test_serving_without_migrating_needs_a_database_that_is_current(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    assert main(["serve", "--no-migrate", "--port", "0", "--database-url", url]) == 3
    assert "has no schema yet" in capsys.readouterr().err


UNUSABLE = [
    "mysql://host/db",
    "sqlite://",
    "nonsense",
    "sqlite:////proc/x/y.db",
    "postgresql://nobody@127.0.0.1:1/none",
]


@pytest.mark.parametrize("command", [["db", "upgrade"], ["serve", "--migrate", "--port", "0"]], ids=" ".join)
@pytest.mark.parametrize("url", UNUSABLE)
def test_a_database_that_cannot_be_used_is_status_3(
    url: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--database-url", url]) == 3
    assert capsys.readouterr().err.startswith("offpolicy-monitor: ")


def test_serve_makes_the_database_and_says_where_everything_is_and_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    arguments = ["serve", "--port", "0", "--database-url", f"sqlite:///{tmp_path / 'x.db'}"]
    environment, logs = clean_environment() | DEFAULTS, [tmp_path / name for name in ("first", "second")]
    with logs[0].open("wb") as first, logs[1].open("wb") as second:
        serving = forks().start(arguments, environment, first)
        try:
            shown = said_by(serving, logs[0])
            refused = forks().start(arguments, environment, second).wait(60)
        finally:
            serving.terminate()
            status = serving.wait(20)
    assert status == 0
    assert shown[0] == f"offpolicy-monitor {__version__} is serving"
    addresses = dict(line.strip().split(maxsplit=1) for line in shown[1:2] + shown[3:4] + shown[5:])
    assert addresses["page"].startswith("http://127.0.0.1:")
    assert addresses["metrics"].endswith("/metrics")
    assert addresses["database"].endswith("x.db")
    assert refused == 3
    [said] = logs[1].read_text().splitlines()
    assert "another process" in said


def said_by(serving: Fork, log: Path) -> list[str]:
    """The lines that a service shows once it serves."""
    deadline = time.monotonic() + 60
    while len(shown := log.read_text().splitlines()) < SHOWN:
        assert serving.poll() is None and time.monotonic() < deadline, shown
        time.sleep(0.02)
    return shown[:SHOWN]


def test_a_port_in_use_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", "--port", port, "--database-url", f"sqlite:///{tmp_path / 'x.db'}"]) == 3
    assert f"cannot bind 127.0.0.1 port {port}" in capsys.readouterr().err
