"""A cache directory with the compiled pass over the tokens, made once: it takes some fifteen seconds of a processor."""

from pathlib import Path

import pytest
import torch

from tests.fixtures.kernels import compiled_columns
from tests.fixtures.tools import require_tool


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What XDG_CACHE_HOME names for those that are to find it."""
    require_tool("g++")
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        compiled_columns(torch.device("cpu"))
    return folder
