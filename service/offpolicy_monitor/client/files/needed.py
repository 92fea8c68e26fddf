"""Needed: a library that one kind of file takes, and that the client does without."""

import importlib
from typing import Any

from offpolicy_monitor.errors import ConfigurationError


def needed(library: str, for_what: str, install: str) -> Any:
    """The library. Raises ConfigurationError, which names what to install, where it is not there."""
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        message = f"{for_what}, and {library} is not installed: pip install {install}"
        raise ConfigurationError(message) from error
