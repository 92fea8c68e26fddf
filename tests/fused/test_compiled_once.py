"""A pass that cannot be compiled is tried once in a run of the tests, and all who need it are told why at once."""

from pathlib import Path

import pytest

from tests.fixtures import fused


def test_a_compiler_that_fails_is_asked_once_and_what_it_says_is_told_to_everyone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(fused, "COMPILER", "no_such_compiler")
        with pytest.raises(RuntimeError, match="No module named no_such_compiler"):
            fused.cached_pass(tmp_path / "cache")
    with pytest.raises(RuntimeError, match="No module named no_such_compiler"):
        fused.cached_pass(tmp_path / "cache")
