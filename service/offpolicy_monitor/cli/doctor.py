"""The subcommand doctor: of a run, what is wrong with the way it is posted; without one, of the installation."""

import argparse
import json
import os
import sys
from typing import Final

from offpolicy_monitor.cli.command import Command, needed
from offpolicy_monitor.cli.environment import add_database, read_settings
from offpolicy_monitor.commandline import DONE, NO

#: What each level is painted as, and has the sign of.
LEVELS: Final = {"ok": "healthy", "warn": "warn", "fail": "critical"}


def _add_arguments(child: argparse.ArgumentParser) -> None:
    needed("answers.arguments").add_doctor(child)
    add_database(child)
    child.add_argument("--prometheus", metavar="URL", help="without --run: ask it whether it scrapes the service")


def _doctor(options: argparse.Namespace) -> int:
    if options.run is not None:
        return int(needed("answers.command").doctor(options))
    installation, settings = needed("cli.installation"), read_settings(database_url=options.database_url)
    place = installation.Place(
        settings, options.url.rstrip("/"), options.prometheus, options.timeout, os.environ.get("OFFPOLICY_TOKEN")
    )
    found = installation.look(place)
    if options.json:
        rows = [{"check": name, "level": one.level, "said": one.said, "change": one.change} for name, one in found]
        sys.stdout.write(json.dumps({"findings": rows}, indent=2, ensure_ascii=False) + "\n")
    else:
        texts = needed("answers.style")
        style = texts.style_of(sys.stdout, os.environ)
        for name, one in found:
            level = LEVELS[one.level]
            sys.stdout.write(style.paint(f"{texts.SIGNS[level]} {name:<12} {one.said}", level) + "\n")
            if one.change:
                sys.stdout.write(f"  {'':<12} {one.change}\n")
    return NO if any(one.level == "fail" for _, one in found) else DONE


DOCTOR: Final = Command(
    "doctor",
    "say what is wrong with the installation, or the way a run is posted, and what to change (status 1: something is)",
    (
        "$ doctor --run r1",
        "$ doctor",
        "$ doctor --prometheus http://prometheus:9090 --url http://monitor:8900",
        "$ doctor --run r1 --json | jq -r '.findings[] | .name + \": \" + .change'",
    ),
    _add_arguments,
    _doctor,
)
