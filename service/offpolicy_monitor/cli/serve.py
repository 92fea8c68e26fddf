"""The subcommand serve: the service itself, until it is told to stop."""

import argparse
import signal
from typing import TYPE_CHECKING, Final

from offpolicy_monitor.cli.command import Command, needed
from offpolicy_monitor.cli.environment import add_database, read_settings, say_where
from offpolicy_monitor.commandline import DONE, INTERRUPTED
from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.server.memory import uncollected

if TYPE_CHECKING:
    from offpolicy_monitor.server.process import Listening
    from offpolicy_monitor.settings import Settings


def _add_arguments(child: argparse.ArgumentParser) -> None:
    child.add_argument("--host", help="address to bind (OFFPOLICY_HOST, 127.0.0.1)")
    child.add_argument("--port", type=int, help="port to bind, 0 for a free one (OFFPOLICY_PORT, 8900)")
    child.add_argument(
        "--workers", type=int, metavar="N", help="processes that serve, with PostgreSQL (OFFPOLICY_WORKERS, 1)"
    )
    child.add_argument(
        "--ssl-certfile", metavar="FILE", help="certificate in PEM, to speak https (OFFPOLICY_SSL_CERTFILE)"
    )
    child.add_argument(
        "--ssl-keyfile", metavar="FILE", help="its key, where that is another file (OFFPOLICY_SSL_KEYFILE)"
    )
    add_database(child)
    child.add_argument(
        "--insecure",
        action="store_true",
        help="allow an address that other machines can reach though no token is asked for",
    )
    child.add_argument(
        "--migrate",
        action=argparse.BooleanOptionalAction,
        help="bring the database's schema up to date first (default: yes for SQLite, no for PostgreSQL)",
    )


def _serve(options: argparse.Namespace) -> int:
    named = ("host", "port", "workers", "database_url", "ssl_certfile", "ssl_keyfile")
    settings = read_settings(**{name: getattr(options, name) for name in named})
    needed("logs").configure(settings.log_level, settings.log_format)
    several = settings.workers > 1
    with uncollected():
        process = needed("server.process")
        service = needed("server.workers.service") if several else process
    if several:
        service.refuse_alone(settings)
    embedded = settings.database_url.startswith("sqlite")
    with needed("server.readiness").waited_for("the database, to look at its schema"):
        if options.migrate if options.migrate is not None else embedded:
            needed("store.migrate").upgrade(settings.database_url)
        else:
            refuse_other_schema(settings.database_url)
    told = service.serve(settings, options.insecure, lambda listening: _say_where(listening, settings))
    return int(process.end(INTERRUPTED if told == signal.SIGINT else DONE))


def refuse_other_schema(url: str) -> None:
    """ConfigurationError where the database is not at the revision that this version needs; Damaged where it is."""
    needed("store.migrate").refuse_damaged(url)
    advice = needed("store.migrate").outdated(url, ", or pass --migrate")
    if advice is not None:
        raise ConfigurationError(advice)


def _say_where(listening: "Listening", settings: "Settings") -> None:
    """Say where everything is, once the service listens."""
    several = {"workers": settings.workers} if settings.workers > 1 else {}
    say_where(listening.base_url, settings, device=listening.device, **several)


SERVE: Final = Command(
    "serve",
    "run the service",
    (
        "$ serve",
        "$ serve --port 0 --database-url sqlite:///run.db",
        "OFFPOLICY_DATABASE_URL=postgresql://user@host/offpolicy $ serve --migrate",
        "OFFPOLICY_DATABASE_URL=postgresql://user@host/offpolicy $ serve --workers 4",
    ),
    _add_arguments,
    _serve,
)
