"""A cache directory with the compiled pass over the tokens."""

import shutil
from pathlib import Path

import pytest
import torch
from offpolicy_monitor.measure import library

from tests.fixtures.fused import CACHE
from tests.fixtures.kernels import compiled_columns
from tests.fixtures.tools import require_tool


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What XDG_CACHE_HOME names for those that are to find it, and nothing else.

    Compiled once for a state of its sources, which takes half a minute of a processor.
    """
    require_tool("g++")
    CACHE.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(CACHE))
        compiled_columns(torch.device("cpu"))
        made = library.find(library.folder(), torch.device("cpu"))
        assert made is not None
        patch.setenv("XDG_CACHE_HOME", str(folder))
        shutil.copy(made, library.folder() / made.name)
    return folder
