"""The audit log: a line for every change and for every refusal of somebody, by the name of the token, never by it."""

from typing import Any, Final

import structlog

LOG: Final[Any] = structlog.get_logger("offpolicy_monitor.audit")
