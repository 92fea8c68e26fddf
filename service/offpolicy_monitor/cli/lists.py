"""The subcommands that list what there is, without a service: methods, settings, version."""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from offpolicy_monitor._version import __version__
from offpolicy_monitor.answers.style import style_of
from offpolicy_monitor.answers.table import Column, table
from offpolicy_monitor.cli.command import Command, add_json, needed, no_arguments
from offpolicy_monitor.cli.environment import read_settings
from offpolicy_monitor.commandline import DONE

#: Columns that may be cut on a narrow terminal, and to how much.
CUT: Final[Mapping[str, int]] = {"thresholds": 12, "summary": 16, "source": 10, "value": 16, "meaning": 24}


def _methods(options: argparse.Namespace) -> int:
    return _printed(needed("catalogue").preset_rows(), options.json)


def _settings(options: argparse.Namespace) -> int:
    return _printed(needed("catalogue").setting_rows(read_settings()), options.json)


def _printed(rows: Sequence[Mapping[str, Any]], as_json: bool) -> int:
    """A table for people, or the rows as JSON."""
    columns = [Column(name, [str(row[name]) for row in rows], cut=CUT.get(name, 0)) for name in rows[0]]
    lines = [json.dumps(rows, indent=2)] if as_json else table(columns, style_of(sys.stdout, os.environ))
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return DONE


def _version(options: argparse.Namespace) -> int:
    sys.stdout.write(f"{__version__}\n")
    return DONE


LISTS: Final = (
    Command(
        "methods",
        "list the corrections that every batch is tried on, with their thresholds",
        ("$ methods", "$ methods --json"),
        add_json,
        _methods,
    ),
    Command(
        "settings",
        "list every setting: environment variable, value in force, meaning",
        ("$ settings", "OFFPOLICY_PORT=9000 $ settings --json"),
        add_json,
        _settings,
    ),
    Command("version", "print the version", ("$ version",), no_arguments, _version),
)
