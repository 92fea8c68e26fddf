"""Structured logs: structlog over the standard library, so that uvicorn's and every other library's lines look alike.

Console on a terminal, one JSON object per line elsewhere. Text that came from a client is only ever a field's value,
with its control characters escaped, so that it cannot forge a line or move a terminal's cursor. An access token that
somebody sent in the wrong place, such as a path, is not repeated there.
"""

import logging
import re
import sys
import time
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

from offpolicy_monitor.timestamps import timestamp

QUIET_LOGGERS = ("uvicorn.access",)
#: An access token, whole or cut short: its id is shown, its secret is not.
TOKEN = re.compile("(opm_[0-9a-f]{12}_)[0-9a-f]+", re.IGNORECASE)
# Its lines say what ours say better, and name the address before the service is ready.
WARNINGS_ONLY = ("uvicorn.error", "alembic")


def configure(level: str, style: str, stream: TextIO | None = None, **fields: Any) -> None:
    """Send every log line to `stream` (stderr) in the chosen style (auto, console, json), from `level` up.

    `fields` are in each of them.
    """
    stream = sys.stderr if stream is None else stream
    shared = [*_shared_processors(), *([_with(fields)] if fields else [])]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        # A logger that kept what it found at its first line would go on with it after the next configuration.
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=list(_renderers(style, stream.isatty()))
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    _quieten()


def add_timestamp(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add when it was said."""
    event["timestamp"] = timestamp(time.time())
    return event


def hide_tokens(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Cut the secret out of every access token in a text value."""
    for key, value in event.items():
        if isinstance(value, str) and "opm_" in value.lower():
            event[key] = TOKEN.sub(r"\1...", value)
    return event


def escape_controls(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace control characters in every text value by their escapes; tracebacks keep their line breaks."""
    for key, value in event.items():
        if isinstance(value, str):
            lines = value.split("\n") if key == "exception" else [value]
            event[key] = "\n".join(map(escaped, lines))
    return event


def escaped(text: str) -> str:
    r"""The text with every character that does not print as its escape: a line feed becomes `\n`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def _shared_processors() -> list[Processor]:
    return [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        add_timestamp,
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        hide_tokens,
        escape_controls,
    ]


def _with(fields: Mapping[str, Any]) -> Processor:
    def add(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {**fields, **event}

    return add


def _renderers(style: str, terminal: bool) -> Iterable[Processor]:
    yield structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if style == "console" or (style == "auto" and terminal):
        plain = structlog.dev.plain_traceback
        yield structlog.dev.ConsoleRenderer(colors=terminal, exception_formatter=plain)
    else:
        yield structlog.processors.JSONRenderer()


def _quieten() -> None:
    for name in QUIET_LOGGERS:
        logging.getLogger(name).handlers = []
        logging.getLogger(name).propagate = False
    for name in WARNINGS_ONLY:
        logging.getLogger(name).setLevel(logging.WARNING)
