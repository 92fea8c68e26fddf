"""The checked-in dashboards, read for tests."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "dashboards" / "grafana").glob("*.json"))


def read(path: Path) -> dict[str, Any]:
    """One dashboard."""
    board: dict[str, Any] = json.loads(path.read_text())
    return board


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Its panels, without the headers of rows."""
    return (panel for panel in board["panels"] if panel["type"] != "row")
