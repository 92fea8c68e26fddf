"""The subcommand backtest: its arguments, what it reads, and what it prints.

Exit status: 0 nothing critical; 1 something critical became active; 2 the command line is wrong; 3 a file cannot be
read as a history, or as rules.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from offpolicy_monitor.alerts import CORRECTIONS, RULES, Terms, paths_of
from offpolicy_monitor.answers.advice import with_advice
from offpolicy_monitor.answers.arguments import add_service
from offpolicy_monitor.answers.command import reader
from offpolicy_monitor.answers.history import history
from offpolicy_monitor.answers.style import style_of
from offpolicy_monitor.backtest import text
from offpolicy_monitor.backtest.errors import BadHistory
from offpolicy_monitor.backtest.figures import Figures, figures_of
from offpolicy_monitor.backtest.tables import read
from offpolicy_monitor.backtest.timeline import timeline
from offpolicy_monitor.client.read import path
from offpolicy_monitor.client.terminal import Terminal
from offpolicy_monitor.commandline import DONE, NO, run_name
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.server.judge import correction_kind
from offpolicy_monitor.server.routes.changes import read_overrides
from offpolicy_monitor.vocabulary import PROFILES

#: Steps after which progress is told for the first time: a short history is judged at once.
LONG = 2_000


def add_arguments(child: argparse.ArgumentParser) -> None:
    """The arguments of backtest."""
    what = child.add_argument_group("what is judged")
    what.add_argument(
        "file", nargs="*", type=Path, metavar="FILE", help="CSV or JSON with a column of steps; several are one"
    )
    what.add_argument("--run", type=run_name, metavar="NAME", help="a stored run of a service in place of files")
    add_service(child)
    child.add_argument("--profile", choices=PROFILES, help="what is normal for the run (the file's or run's own)")
    child.add_argument("--correction", choices=CORRECTIONS, help="kind of the method in use, for rules on masks")
    child.add_argument("--rules", type=Path, metavar="FILE", help="thresholds as JSON: what PATCH takes as `alerts`")
    child.add_argument("--json", action="store_true", help="one JSON document, for scripts")


def main(options: argparse.Namespace) -> int:
    """Judge, and print what was told."""
    if bool(options.file) == bool(options.run):
        sys.stderr.write("offpolicy-monitor backtest: give a FILE, or a stored run by --run\n")
        return 2
    overrides = None if options.rules is None else overrides_of(options.rules)
    figures, own = _of_run(options) if options.run else _of_files(options)
    terms = Terms(
        options.profile or own.get("profile") or PROFILES[0],
        options.correction or own.get("correction"),
        (own.get("overrides") or {}) if overrides is None else overrides,
        own.get("length_cap"),
    )
    found = timeline(figures, terms, _progress(len(figures.steps)))
    if options.json:
        sys.stderr.writelines(f"{note}\n" for note in figures.notes)
        sys.stdout.write(json.dumps({"alerts": [alert.answer() for alert in found]}, indent=2) + "\n")
    else:
        sys.stdout.writelines(
            f"{line}\n" for line in text.told(figures, terms, found, style_of(sys.stdout, os.environ))
        )
    return NO if any(alert.severity == "critical" for alert in found) else DONE


def _of_files(options: argparse.Namespace) -> tuple[Figures, Mapping[str, Any]]:
    tables = [read(file) for file in options.file]
    profile = next((table.profile for table in tables if table.profile is not None), None)
    if profile is not None and profile not in PROFILES:
        raise BadHistory(f"{options.file[0]}: profile {profile!r} is none of {', '.join(PROFILES)}")
    return figures_of(tables, _wanted()), {"profile": profile}


def _of_run(options: argparse.Namespace) -> tuple[Figures, Mapping[str, Any]]:
    service = reader(options)

    def ask() -> tuple[Figures, Mapping[str, Any]]:
        about = service.get(path(options.run))
        columns = {name: values for name, values in history(service, options.run, _wanted()).items() if values}
        steps = sorted({step for values in columns.values() for step in values})
        own = {
            "profile": about["profile"],
            "correction": correction_kind(about["correction"], about["methods"]),
            "overrides": about["alerts"],
            "length_cap": about.get("length_cap"),
        }
        return Figures(steps, columns, (), ()), own

    return with_advice(service, options.run, ask)


def _wanted() -> list[str]:
    return list(paths_of(RULES))


def overrides_of(file: Path) -> Mapping[str, Any]:
    """The run's own thresholds in a file. Raises BadHistory for what PATCH would refuse."""
    try:
        return read_overrides(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise BadHistory(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BadHistory(f"{file} is no JSON: {error}") from error
    except Refusal as error:
        raise BadHistory(f"{file}: {error.detail}") from error


def _progress(steps: int) -> Callable[[int], None]:
    """Tells on stderr how far a long history is judged."""
    if steps < LONG:
        return lambda done: None
    terminal, began = Terminal(sys.stderr), time.monotonic()

    def reached(done: int) -> None:
        left = (time.monotonic() - began) / done * (steps - done)
        terminal.offer(lambda: f"{done:,} of {steps:,} steps judged, {left:.0f} s left")
        if done == steps:
            terminal.end()

    return reached
