"""A cache directory with the compiled pass over the tokens."""

import shutil
from pathlib import Path

import pytest
from offpolicy_monitor.measure import library

from tests.fixtures.kernels import cached_columns
from tests.fixtures.tools import require_tool


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What XDG_CACHE_HOME names for those that are to find it, and nothing else."""
    require_tool("g++")
    made = cached_columns()
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        shutil.copy(made, library.folder() / made.name)
    return folder
