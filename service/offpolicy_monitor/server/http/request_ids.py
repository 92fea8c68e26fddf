"""The id of each request: the client's own where it is well-formed, else one of this process; one look-up per request.

It stands in the log line, in a header of the answer and in problem documents, so that who was refused can be found.
"""

import os
import re
from collections.abc import Callable, Iterable
from itertools import count
from typing import Final

from starlette.types import Scope

HEADER: Final = b"x-request-id"
#: In the scope of a request.
ID_KEY: Final = "offpolicy_monitor.request_id"
#: Nothing that a shell, a log or a page could take for more than a name.
SHAPE: Final = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
INSTANCE_PREFIX: Final = "urn:offpolicy-monitor:request:"


def maker() -> Callable[[], str]:
    """Makes ids that no other process makes: eight random letters of its own, and a number."""
    process, numbers = os.urandom(4).hex(), count(1)
    return lambda: f"{process}-{next(numbers)}"


def sent(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The client's own id; None where there is not one, or not such a one."""
    found = [value for name, value in headers if name == HEADER]
    return found[0].decode() if len(found) == 1 and SHAPE.fullmatch(found[0]) else None


def instance_of(scope: Scope) -> str | None:
    """The id as problem documents have it; None of a request that has none."""
    found = scope.get(ID_KEY)
    return f"{INSTANCE_PREFIX}{found}" if found else None
