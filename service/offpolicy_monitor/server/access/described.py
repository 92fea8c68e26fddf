"""Described: what each route asks for, in the OpenAPI document. The doors say it; here it is only written down."""

from collections.abc import Mapping
from typing import Any, Final

from offpolicy_monitor.access import MEANING
from offpolicy_monitor.server.access.doors import DOORS
from offpolicy_monitor.server.openapi import problems

_SCOPES: Final = "; ".join(f"`{scope}`: {meaning}" for scope, meaning in MEANING.items())
SCHEMES: Final[Mapping[str, Mapping[str, str]]] = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": f"An access token, `opm_<id>_<secret>`, where the service asks for one. Scopes: {_SCOPES}.",
    },
    "browser": {
        "type": "http",
        "scheme": "basic",
        "description": "The same for browsers: any user, the token as password.",
    },
}


def describe(document: dict[str, Any]) -> None:
    """Add the schemes, and to every operation the scopes of which it needs one."""
    document["components"]["securitySchemes"] = {name: dict(scheme) for name, scheme in SCHEMES.items()}
    for door in DOORS:
        operation = document["paths"].get(door.path, {}).get(door.method.lower())
        if operation is None:
            continue
        operation["security"] = [{name: [scope]} for scope in door.scopes for name in SCHEMES]
        if door.scopes:
            refused = {str(status): said for status, said in problems(401, 403).items()}
            operation["responses"] = dict(sorted({**operation["responses"], **refused}.items()))
