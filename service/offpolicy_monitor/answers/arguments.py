"""The arguments of the subcommands that ask: where the service is, what is asked, and how it is printed."""

import argparse
import os
from typing import Final

from offpolicy_monitor.addresses import LOCAL
from offpolicy_monitor.client.read import TIMEOUT
from offpolicy_monitor.commandline import natural, number, run_name, some_seconds
from offpolicy_monitor.vocabulary import GAPS, STANDARD_METHOD

LEVELS: Final = ("token", "sequence", "geometric")


def add_service(child: argparse.ArgumentParser) -> None:
    """Where the service is, and how long it is waited for."""
    url = os.environ.get("OFFPOLICY_URL") or LOCAL
    child.add_argument("--url", default=url, metavar="URL", help=f"the service (OFFPOLICY_URL, {LOCAL})")
    child.add_argument(
        "--timeout",
        type=some_seconds,
        default=TIMEOUT,
        metavar="S",
        help=f"seconds to wait for an answer ({TIMEOUT:g})",
    )


def add_run(child: argparse.ArgumentParser) -> None:
    """The run that is asked about."""
    child.add_argument("run", type=run_name, metavar="RUN", help="name of the run")


def add_runs(child: argparse.ArgumentParser) -> None:
    """Of runs."""
    child.add_argument("-q", metavar="PATTERN", help="regular expression found in a name, or in a label as name=value")
    _add_printing(child)


def add_show(child: argparse.ArgumentParser) -> None:
    """Of show."""
    add_run(child)
    add_service(child)
    how = child.add_mutually_exclusive_group()
    _add_json(how)
    how.add_argument("--csv", action="store_true", help="its history: a row per step, for backtest or a notebook")


def add_alerts(child: argparse.ArgumentParser) -> None:
    """Of alerts."""
    child.add_argument("--run", type=run_name, metavar="RUN", help="alerts of this run alone")
    child.add_argument("--state", choices=("active", "pending", "resolved"), help="alerts in this state alone")
    _add_printing(child)


def add_diagnose(child: argparse.ArgumentParser) -> None:
    """Of diagnose."""
    add_run(child)
    child.add_argument("--from", type=natural, dest="first", metavar="STEP", help="first step to look at")
    child.add_argument("--to", type=natural, dest="last", metavar="STEP", help="last step to look at")
    _add_printing(child)


def add_doctor(child: argparse.ArgumentParser) -> None:
    """Of doctor."""
    child.add_argument("--run", type=run_name, metavar="RUN", help="name of the run; without it, of the installation")
    _add_printing(child)


def add_whatif(child: argparse.ArgumentParser) -> None:
    """Of whatif."""
    add_run(child)
    child.add_argument(
        "--method",
        action="append",
        metavar="NAME",
        help=f"a method, or a row that runs (the correction in use, else {STANDARD_METHOD}); several are compared",
    )
    child.add_argument("--level", choices=LEVELS, help="what is kept or dropped as one (the row's)")
    child.add_argument("--gap", choices=GAPS, help="which gap is looked at (the row's)")
    child.add_argument("--threshold", type=number, metavar="X", help="threshold to try (the row's)")
    child.add_argument("--bound", metavar="NAME", help="threshold of a rule with several, as in lower (the last)")
    _add_printing(child)


def _add_printing(child: argparse.ArgumentParser) -> None:
    add_service(child)
    _add_json(child)


def _add_json(child: argparse._ActionsContainer) -> None:
    child.add_argument("--json", action="store_true", help="the answers of the API as they are, for scripts")
