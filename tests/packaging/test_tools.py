"""A missing system program skips a test for a developer and fails it in continuous integration."""

import pytest

from tests.fixtures.tools import find_tool, require_tool


def test_a_missing_program_skips_the_test_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="needs no-such-program: apt-get install no-such-program"):
        require_tool("no-such-program")


def test_a_missing_program_fails_the_test_in_continuous_integration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="needs no-such-program"):
        require_tool("no-such-program")


def test_a_program_that_does_as_well_is_taken_where_the_first_is_missing() -> None:
    assert require_tool("no-such-program", "sh") == find_tool("sh")


def test_a_program_on_the_path_is_found() -> None:
    tool = find_tool("sh")
    assert tool is not None
    assert tool.name == "sh"
