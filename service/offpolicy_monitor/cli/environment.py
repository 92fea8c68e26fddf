"""Settings of a subcommand: from the environment, with the flags that were given in their place."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from offpolicy_monitor._version import __version__
from offpolicy_monitor.cli.command import PROGRAM, needed
from offpolicy_monitor.errors import ConfigurationError

if TYPE_CHECKING:
    from offpolicy_monitor.settings import Settings


def add_database(child: argparse.ArgumentParser) -> None:
    """The argument that names the database."""
    child.add_argument("--database-url", metavar="URL", help="SQLAlchemy URL (OFFPOLICY_DATABASE_URL, a SQLite file)")


def read_settings(**overrides: object) -> "Settings":
    """The settings in force; ConfigurationError names each variable that is wrong."""
    module = needed("settings")
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        settings: Settings = module.Settings(**given)
    except ValueError as error:
        raise ConfigurationError(_setting_errors(error, module.Settings)) from error
    return settings


def database_url(options: argparse.Namespace) -> str:
    """The database that was named, or that of the environment."""
    return read_settings(database_url=options.database_url).database_url


def without_password(url: str) -> str:
    """The address of a database, fit to be shown."""
    return str(needed("catalogue").without_password(url))


def say_where(base_url: str, settings: "Settings", **more: object) -> None:
    """Say where everything is, once it is served, and what `more` there is to know."""
    lines = {
        "page": f"{base_url}/",
        "API docs": f"{base_url}/docs",
        "metrics": f"{base_url}/metrics",
        "post to": f"{base_url}/v1/runs/RUN/batches",
        "database": without_password(settings.database_url),
        **more,
    }
    sys.stdout.write(f"{PROGRAM} {__version__} is serving\n")
    sys.stdout.writelines(f"  {name:<9} {value}\n" for name, value in lines.items())
    sys.stdout.flush()


def _setting_errors(error: ValueError, settings: Any) -> str:
    problems: list[Any] = getattr(error, "errors", list)()
    lines = [f"{settings.variable(str(item['loc'][0]))}: {item['msg']}" for item in problems]
    return "\n".join(lines) or str(error)
