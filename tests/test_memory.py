"""Folders of tests lie in memory where there is room, and where they were told to be before all."""

import os
import tempfile
from pathlib import Path

import pytest

from tests.fixtures.memory import VARIABLES, use_memory


@pytest.fixture(params=VARIABLES)
def variable(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """One of the variables, of which none is set; after the test all are as they were."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
        del os.environ[name]
    monkeypatch.setattr(tempfile, "tempdir", tempfile.tempdir)
    return str(request.param)


def test_folders_are_made_where_there_is_room(variable: str, tmp_path: Path) -> None:
    use_memory(tmp_path, room=1 << 60)
    use_memory(tmp_path / "nothing", room=0)
    assert variable not in os.environ
    use_memory(tmp_path, room=0)
    assert os.environ[variable] == str(tmp_path)


def test_folders_are_made_where_they_were_told(variable: str, tmp_path: Path) -> None:
    os.environ[variable] = "elsewhere"
    use_memory(tmp_path, room=0)
    assert os.environ[variable] == "elsewhere"


def test_this_process_makes_its_own_there_too(variable: str, tmp_path: Path) -> None:
    assert Path(tempfile.gettempdir()) != tmp_path
    use_memory(tmp_path, room=0)
    assert Path(tempfile.gettempdir()) == tmp_path
