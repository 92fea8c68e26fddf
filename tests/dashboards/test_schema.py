"""Grafana would accept the dashboards: the SDK reads them without loss, and Grafana's own TypeScript types hold."""

import json
import os
import shutil
import subprocess
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


def complaints(compiler: Path, folder: Path, boards: list[str]) -> str:
    """What tsc says of the boards; empty where it has nothing to say."""
    (folder / "node_modules").symlink_to(compiler / "node_modules")
    shutil.copy(HERE / "grafana.ts", folder)
    rows = [f"export const board{number}: Board = {text};" for number, text in enumerate(boards)]
    (folder / "boards.ts").write_text("\n".join(['import { Board } from "./grafana";', *rows]))
    tsc = folder / "node_modules" / "typescript" / "bin" / "tsc"
    command: list[str | Path] = [require_tool("node"), tsc, *STRICT, "boards.ts"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False).stdout


def test_the_types_of_grafana_accept_every_dashboard(compiler: Path, tmp_path: Path) -> None:
    assert complaints(compiler, tmp_path, [file.read_text() for file in FILES]) == ""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('"displayMode": "list"', '"displayMode": "sideways"'),
        ('"fillOpacity": 0', '"fillOpacity": "0"'),
        ('"showPoints"', '"showDots"'),
        ('"graphTooltip": 1', '"graphTooltip": 7'),
        ('"type": "timeseries"', '"type": "timeserie"'),
    ],
)
def test_the_types_of_grafana_refuse_a_wrong_value(compiler: Path, tmp_path: Path, right: str, wrong: str) -> None:
    text = next(file for file in FILES if file.stem == "offpolicy-run").read_text()
    assert right in text
    assert "error TS" in complaints(compiler, tmp_path, [text.replace(right, wrong)])
