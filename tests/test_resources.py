"""Migrations and the runbook are found where the package lies."""

import pytest
from offpolicy_monitor import resources
from offpolicy_monitor.errors import ConfigurationError


def test_migrations_are_found() -> None:
    assert (resources.path("migrations") / "env.py").is_file()


def test_the_runbook_is_found() -> None:
    assert resources.path("docs/runbook.md").read_text().startswith("# Runbook")


def test_a_folder_that_is_nowhere_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="no-such-folder"):
        resources.path("no-such-folder")
