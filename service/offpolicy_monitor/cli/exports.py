"""The subcommands of export: dashboards and rules, with the user's address in their links."""

import argparse
import sys
from pathlib import Path
from typing import Final

from offpolicy_monitor.cli.command import Command, group_of
from offpolicy_monitor.commandline import DONE
from offpolicy_monitor.export import DEFAULT_SERVICE_URL, checked_url, export


def _add_arguments(child: argparse.ArgumentParser) -> None:
    child.add_argument("--to", required=True, type=Path, metavar="DIR", help="folder to write to; made where it is not")
    child.add_argument(
        "--service-url",
        type=_service_url,
        default=DEFAULT_SERVICE_URL,
        metavar="URL",
        help=f"where people reach the service, for links to runbook and page ({DEFAULT_SERVICE_URL})",
    )


def _service_url(text: str) -> str:
    try:
        return checked_url(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _export(options: argparse.Namespace) -> int:
    written = export(options.export_command, options.to, options.service_url)
    sys.stdout.writelines(f"{path}\n" for path in written)
    return DONE


EXPORT_COMMANDS: Final = tuple(
    Command(
        name,
        summary,
        (f"$ export {name} --to {there}", f"$ export {name} --to {here} --service-url https://monitor.example.com"),
        _add_arguments,
        _export,
    )
    for name, summary, there, here in (
        (
            "grafana",
            "write the dashboards as JSON, to import or to provision",
            "/etc/grafana/dashboards",
            "dashboards",
        ),
        ("prometheus", "write the alert and recording rules for Prometheus", "/etc/prometheus/rules", "rules"),
    )
)

EXPORT: Final = group_of("export", "write dashboards and rules for Grafana and Prometheus", EXPORT_COMMANDS)
