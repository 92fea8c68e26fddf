"""How a run ends: normally, which is said to the service, or not, of which its silence tells.

Whether the process ends by itself is asked at its exit, where no exception is there any more to be seen. What was left
behind then is looked at: what the interpreter keeps of the last exception that nobody caught, and the status given to
`sys.exit`, which is listened to from the first monitor on, since frameworks catch what goes wrong, print it, and exit
with a status. A child of multiprocessing and a worker of Ray end alike whatever happened in them, so nothing is known.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, NoReturn

from offpolicy_monitor.client import outcome
from offpolicy_monitor.client.backoff import delay
from offpolicy_monitor.client.connection import Connection

#: What a service answers at most.
ANSWER_BYTES: Final = 1 << 20
WORKER_OF_RAY: Final = "default_worker.py"
_status: Any = None


def watch() -> None:
    """Remember from now on with what status `sys.exit` was called."""
    leave = sys.exit
    if getattr(leave, "watched_by", None) == __name__:
        return

    @wraps(leave)
    def watched(status: Any = None, /) -> NoReturn:
        global _status
        _status = status
        leave(status)

    watched.watched_by = __name__  # pyrefly: ignore[missing-attribute]
    sys.exit = watched


def uncaught() -> BaseException | None:
    """The last exception that nobody caught."""
    return getattr(sys, "last_value", None)


def is_normal(error: BaseException | None) -> bool:
    """Whether what is under way, if anything, is a normal end."""
    return error is None or (isinstance(error, SystemExit) and error.code in (None, 0))


def process_ends_well(before: BaseException | None) -> bool:
    """At exit: whether the process comes to its end by itself, as far as can be known; `before` was uncaught before."""
    error = uncaught()
    if error is not None and error is not before:
        return False
    return _status in (None, 0) and not _is_child()


def say(connection: Connection, path: str, seconds: float, trouble: Callable[[str], None]) -> bool:
    """Say that the run at `path` has ended, trying for so many seconds; whether the service knows it now."""
    end, failures, found = time.monotonic() + seconds, 0, outcome.Outcome("again", message="no time was left")
    body = json.dumps({"finished": True}).encode()
    while found.kind == "again" and not found.shut_out and (left := end - time.monotonic()) > 0:
        try:
            answer = connection.exchange("PATCH", path, [body], patience=left, most=ANSWER_BYTES)
            found = outcome.of_answer(answer)
        except OSError as error:
            found = outcome.of_failure(error)
        if found.kind == "again":
            failures += 1
            time.sleep(max(0.0, min(delay(failures, found.retry_after), end - time.monotonic())))
    if found.kind != "sent":
        trouble(found.message)
    return found.kind == "sent"


def _is_child() -> bool:
    process = sys.modules.get("multiprocessing.process")
    started = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    return (process is not None and process.parent_process() is not None) or started.endswith(WORKER_OF_RAY)
