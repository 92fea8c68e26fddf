"""What to do where a service has no answer: it is away, it is of another release, or there is no such run."""

import difflib
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Final, TypeVar

from offpolicy_monitor.client.read import PAGE, Reader, Unreachable
from offpolicy_monitor.errors import Refusal, Unavailable

#: Names that are offered for one that is not there, and how much of a name they must have in common with it.
OFFERED: Final = 3
ALIKE: Final = 0.6
#: Refusals of what every service of this release knows.
OF_ANOTHER_RELEASE: Final = frozenset({"unknown-path", "unknown-parameter"})
#: What to do where the service lets nobody in, or nobody with this token.
MISSING_TOKEN: Final = {
    HTTPStatus.UNAUTHORIZED: "Set OFFPOLICY_TOKEN; `offpolicy-monitor token create --scope read` makes one, where the "
    "service runs",
    HTTPStatus.FORBIDDEN: "Set OFFPOLICY_TOKEN to one that is for this",
}

Result = TypeVar("Result")


def with_advice(service: Reader, run: str | None, act: Callable[[], Result]) -> Result:
    """Do it; what goes wrong with the service, or with the name of the run, is raised with what to do about it."""
    try:
        return act()
    except Unreachable as error:
        raise Unreachable(f"{error}. Start one with `offpolicy-monitor serve`, or name its address by --url") from error
    except Unavailable as error:
        message = f"the service at {service.url} cannot answer now: {error.detail}. Try again"
        raise Refusal(400, error.kind, message) from error
    except KeyError as error:
        message = f"the service at {service.url} answers without {error}: it is of another release than this command"
        raise Unreachable(message) from error
    except Refusal as error:
        raise _advised(error, service, run) from error


def near(name: str, names: Iterable[str]) -> list[str]:
    """Up to OFFERED of `names` that are like `name`, the likest first: letters in common, or one within the other."""
    folded = {other.lower(): other for other in names}
    alike = difflib.get_close_matches(name.lower(), folded, OFFERED, ALIKE)
    within = [other for other in folded if name.lower() in other or other in name.lower()]
    return [folded[other] for other in dict.fromkeys([*alike, *within])][:OFFERED]


def _advised(error: Refusal, service: Reader, run: str | None) -> Refusal:
    if error.kind in OF_ANOTHER_RELEASE:
        message = f"the service at {service.url} is of another release than this command: {error.detail}"
        return Refusal(error.status, error.kind, message)
    if error.status in MISSING_TOKEN:
        return Refusal(error.status, error.kind, f"{service.url}: {error.detail}. {MISSING_TOKEN[error.status]}")
    if error.kind == "unknown-run" and run:
        return Refusal(error.status, error.kind, f"{error.detail}{_others(service, run)}")
    return error


def _others(service: Reader, run: str) -> str:
    """What runs there are instead."""
    try:
        names = [row["run"] for row in service.get("/v1/runs", {"limit": PAGE})["runs"]]
    except (Refusal, Unavailable, Unreachable, KeyError):
        return ""
    found = near(run, names)
    if found:
        return f"; did you mean {' or '.join(found)}?"
    return "; `offpolicy-monitor runs` lists those that there are" if names else ", and no other yet"
