"""Grafana would accept the dashboards: the SDK reads them without loss, and Grafana's own TypeScript types hold."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.dashboards.boards import FILES, ROOT, read
from tests.fixtures.tools import require_tool

HERE = Path(__file__).parent
# Ignored by git and kept between runs; `make clean` removes it with the environment.
MODULES = ROOT / ".venv" / "grafana-types"
STRICT = ["--strict", "--noEmit", "--target", "es2022", "--module", "es2022", "--moduleResolution", "node10"]
#: Of the types themselves nothing is checked, and those of a browser are not read, which takes longer than the rest.
QUICK = ["--skipLibCheck", "--lib", "es2022"]


def read_back(board: dict[str, Any]) -> dict[str, Any]:
    register_default_plugins()
    again: dict[str, Any] = json.loads(json.dumps(Dashboard.from_json(board), cls=JSONEncoder))
    return again


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_sdk_reads_a_dashboard_back_without_loss(file: Path) -> None:
    board = read(file)
    # The SDK lacks these four; Grafana's Prometheus data source reads them from every annotation.
    for annotation in board["annotations"]["list"]:
        assert [annotation.pop(name) for name in ("titleFormat", "textFormat", "tagKeys", "step")]
    assert read_back(board) == board


def test_the_sdk_drops_what_grafana_does_not_know() -> None:
    board = read(FILES[0])
    board["panels"][1]["colour"] = "green"
    assert "colour" not in read_back(board)["panels"][1]


@pytest.fixture(scope="module")
def compiler() -> Path:
    """A folder in which tsc checks against Grafana's types, at the versions of package-lock.json."""
    npm = require_tool("npm")
    MODULES.mkdir(parents=True, exist_ok=True)
    lock = (HERE / "package-lock.json").read_bytes()
    installed = MODULES / "installed-lock.json"
    if not installed.exists() or installed.read_bytes() != lock:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, MODULES / name)
        command: list[str | Path] = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=MODULES, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            reason = f"npm could not install Grafana's types: {done.stderr[-2000:]}"
            pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
        installed.write_bytes(lock)
    return MODULES


#: Changes to a dashboard that Grafana would not understand.
WRONG = {
    '"displayMode": "list"': '"displayMode": "sideways"',
    '"fillOpacity": 0': '"fillOpacity": "0"',
    '"showPoints"': '"showDots"',
    '"graphTooltip": 1': '"graphTooltip": 7',
    '"type": "timeseries"': '"type": "timeserie"',
}


def changed(right: str) -> str:
    """The dashboard of a run with one of the changes, and of its panels those that it changes."""
    text = next(file for file in FILES if file.stem == "offpolicy-run").read_text()
    assert right in text
    before, board = json.loads(text), json.loads(text.replace(right, WRONG[right]))
    board["panels"] = [panel for panel, old in zip(board["panels"], before["panels"], strict=True) if panel != old]
    return json.dumps(board)


@pytest.fixture(scope="module")
def complaints(compiler: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What tsc says of every dashboard and of every change, all in one run: it takes seconds to read the types."""
    folder = tmp_path_factory.mktemp("tsc")
    (folder / "node_modules").symlink_to(compiler / "node_modules")
    shutil.copy(HERE / "grafana.ts", folder)
    boards = {file.stem: file.read_text() for file in FILES} | {right: changed(right) for right in WRONG}
    lines = [
        f"export const board{at}: Board = {json.dumps(json.loads(text))};" for at, text in enumerate(boards.values())
    ]
    (folder / "boards.ts").write_text("\n".join([*lines, 'import { Board } from "./grafana";']))
    tsc = folder / "node_modules" / "typescript" / "bin" / "tsc"
    command: list[str | Path] = [require_tool("node"), tsc, *STRICT, *QUICK, "--pretty", "false", "boards.ts"]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False).stdout
    found = dict.fromkeys(boards, "")
    for line in re.findall(r"^\S.*error TS.*$", said, re.MULTILINE):
        where = re.match(r"boards\.ts\((\d+),", line)
        assert where, said
        found[list(boards)[int(where[1]) - 1]] += line
    return found


@pytest.mark.parametrize("name", [file.stem for file in FILES])
def test_the_types_of_grafana_accept_every_dashboard(complaints: Mapping[str, str], name: str) -> None:
    assert complaints[name] == ""


@pytest.mark.parametrize("right", WRONG)
def test_the_types_of_grafana_refuse_a_wrong_value(complaints: Mapping[str, str], right: str) -> None:
    assert "error TS" in complaints[right]
