"""The audit log: a line for every change and for every refusal of somebody, by the name of the token, never by it."""

from typing import Any, Final

import structlog


def log() -> Any:
    """The logger, by what is configured when it is first used."""
    return structlog.get_logger("offpolicy_monitor.audit")


#: The service's own, which configures logs once.
LOG: Final = log()
