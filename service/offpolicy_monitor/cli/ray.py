"""The subcommand ray: the service under Ray Serve, in several replicas behind one proxy."""

import argparse
import os
import signal
from functools import partial
from typing import TYPE_CHECKING, Final

from offpolicy_monitor.cli.command import Command, group_of, needed
from offpolicy_monitor.cli.environment import add_database, read_settings, say_where
from offpolicy_monitor.cli.serve import refuse_other_schema
from offpolicy_monitor.commandline import DONE, INTERRUPTED
from offpolicy_monitor.errors import ConfigurationError

if TYPE_CHECKING:
    from offpolicy_monitor.settings import Settings

#: The extra that brings Ray.
EXTRA: Final = "ray"


def _add_arguments(child: argparse.ArgumentParser) -> None:
    child.add_argument("--host", help="address that the proxy binds (OFFPOLICY_HOST, 127.0.0.1)")
    child.add_argument("--port", type=int, help="its port (OFFPOLICY_PORT, 8900)")
    add_database(child)
    child.add_argument(
        "--insecure",
        action="store_true",
        help="allow an address that other machines can reach though no token is asked for",
    )
    child.add_argument(
        "--migrate", action="store_true", help="bring the database's schema up to date first (default: no)"
    )
    try:
        fields = needed("rayserve.options").Options.model_fields
    except ConfigurationError:
        # A library is missing that they are read off; which one is said when the command runs.
        child.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
        return
    for name, field in fields.items():
        kind = float if field.annotation is float else int
        default = "as --replicas" if field.default is None else f"{field.default:g}"
        child.add_argument(
            f"--{name.replace('_', '-')}", type=kind, metavar="N", help=f"{field.description} (default: {default})"
        )


def _up(options: argparse.Namespace) -> int:
    module = needed("rayserve.options")
    chosen = module.Options.of({name: getattr(options, name) for name in module.Options.model_fields})
    named = ("host", "port", "database_url")
    settings = read_settings(**{name: getattr(options, name) for name in named})
    needed("logs").configure(settings.log_level, settings.log_format)
    module.refuse_alone(settings)
    # Replicas read their settings themselves, in their own processes.
    for name in ("database_url", "port"):
        os.environ[settings.variable(name)] = str(getattr(settings, name))
    if options.migrate:
        needed("store.migrate").upgrade(settings.database_url)
    else:
        refuse_other_schema(settings.database_url)
    started = partial(say_where, _base_url(settings), settings, replicas=chosen.replicas)
    told = needed("rayserve.up", EXTRA).serve_here(settings, options.insecure, chosen, started)
    return INTERRUPTED if told == signal.SIGINT else DONE


def _base_url(settings: "Settings") -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"


RAY: Final = group_of(
    "ray",
    "run the service under Ray Serve, in several replicas",
    (
        Command(
            "up",
            "start Ray on this machine and serve, until it is told to stop",
            (
                "$ ray up --database-url postgresql://user@host/offpolicy --migrate",
                "$ ray up --replicas 4 --num-gpus 0.25",
                "$ ray up --replicas 2 --max-replicas 8 --target-ongoing-requests 4",
            ),
            _add_arguments,
            _up,
        ),
    ),
)
