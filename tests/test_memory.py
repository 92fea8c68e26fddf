"""Folders of tests lie in memory where there is room, and where they were told to be before all."""

import os
from pathlib import Path

import pytest

from tests.fixtures.memory import VARIABLE, use_memory


def test_folders_are_made_where_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    del os.environ[VARIABLE]
    use_memory(tmp_path, room=1 << 60)
    use_memory(tmp_path / "nothing", room=0)
    assert VARIABLE not in os.environ
    use_memory(tmp_path, room=0)
    assert os.environ[VARIABLE] == str(tmp_path)


def test_folders_are_made_where_pytest_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "elsewhere")
    use_memory(tmp_path, room=0)
    assert os.environ[VARIABLE] == "elsewhere"
