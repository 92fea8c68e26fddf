"""The errors that pass from one part of this project to another, one base per decision the caller can take.

    OffpolicyMonitorError
    ├── ConfigurationError      the operator mends the setup; the process does not start
    │   └── BadHistory          a file is no history of a run (backtest)
    ├── FrameError              bytes that are no frame; the server turns it into a Refusal with status 400
    │   └── FrameLimitError     more of them than is read; the same with 413 or 422
    ├── Problem                 what a problem document shows (RFC 9457)
    │   ├── Refusal             the request is at fault; sending it again unchanged is pointless (4xx)
    │   │   ├── Outdated        a shard was measured by method rows that have changed: it is measured again (store)
    │   │   └── RolloutGone     the first half of a post is not here, or no longer (pipeline.rollouts)
    │   └── Unavailable         the service is at fault or busy; send it again later (429, 503, 507)
    │       └── Damaged, Moved  the database's file is not what it was (store)
    ├── InvalidSummaryError     a summary from elsewhere is none: a Refusal of the server (summary.checks)
    ├── RecordError             named numbers are none of a summary's: the same (summary.stored.named)
    ├── StoredSummaryError      stored bytes are no summary that this release reads (summary.stored)
    ├── DiedStarting            a worker ended before it served, without a word (server.workers)
    ├── Unreachable             nobody answers a question, or another program does; an OSError too (client)
    ├── Mistake, Lost           a trainer's arguments are wrong; a batch will not arrive (client)
    └── BadDump, Unreadable, Unfinished
                                a dump cannot be posted; it cannot be read; not yet (client.files)

Each is defined where it is raised, but those that many raise, here. What is caught where it is raised is in no tree.
This module imports nothing of the project.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

#: Characters of a client's own text that a message repeats.
QUOTED_CHARACTERS = 64
#: Bits of an integer that is repeated; Python refuses to write very long ones.
LONGEST_INTEGER = 64
#: Fields at fault that one refusal names.
MAX_ERRORS = 32


class OffpolicyMonitorError(Exception):
    """Base of the errors that pass from one part of this project to another."""


class ConfigurationError(OffpolicyMonitorError):
    """The setup is wrong: a setting, a missing extra, a database that cannot be used. Says what to change."""


class FrameError(OffpolicyMonitorError):
    """Bytes that do not hold a well-formed safetensors frame."""


@dataclass(frozen=True)
class FieldError:
    """One field at fault: its name on the wire, and what is wrong with it."""

    field: str
    message: str


def quotable(text: str, most: int = QUOTED_CHARACTERS) -> str:
    """Client text fit for a message: cut, and without what is no letter (JSON may hold half of a surrogate pair)."""
    shown = text if len(text) <= most else f"{text[: most - 3]}..."
    return "".join(letter if letter.isprintable() else "?" for letter in shown)


def quoted(value: object) -> str:
    """A value of the client's for a message: text between quotes, a number, or the type of anything else."""
    if isinstance(value, str):
        return repr(quotable(value))
    if isinstance(value, int) and value.bit_length() > LONGEST_INTEGER:
        return f"an integer of {value.bit_length()} bits"
    return str(value) if isinstance(value, int | float | None) else f"a {type(value).__name__}"


class Problem(OffpolicyMonitorError):
    """What a problem document shows: HTTP status, stable `kind` (the last part of `type`), detail, fields at fault."""

    def __init__(self, status: int, kind: str, detail: str, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(detail)
        self.status = HTTPStatus(status)
        self.kind = kind
        self.detail = detail
        self.errors = tuple(errors)


class Refusal(Problem):
    """The request is wrong as it stands (4xx)."""

    @classmethod
    def of_field(cls, status: int, kind: str, field: str, message: str) -> "Refusal":
        """Refuse because of one field; the detail repeats the field and the message."""
        return cls(status, kind, f"{field}: {message}", [FieldError(field, message)])

    @classmethod
    def over_limit(cls, status: int, kind: str, field: str, got: object, limit: int | float, setting: str) -> "Refusal":
        """Refuse because a limit is exceeded; names the limit and the setting that raises it."""
        return cls.of_field(status, kind, field, f"{got} is over the limit of {limit}; raise {setting} to allow it")


class Unavailable(Problem):
    """The request may be fine; the service cannot take it now (429, 503, 507). `retry_after` in seconds."""

    def __init__(self, status: int, kind: str, detail: str, retry_after: int = 1) -> None:
        super().__init__(status, kind, detail)
        self.retry_after = retry_after
