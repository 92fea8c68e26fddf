"""The command `offpolicy-monitor`: its subcommands in order, and how each ends.

    serve, ray                                      cli.serve, cli.ray
    demo, tail, replay                              cli.posts
    runs, show, alerts, diagnose, doctor, whatif,
    report, backtest                                cli.questions, cli.doctor
    db, token, export, methods, settings, version   cli.database, cli.tokens, cli.exports, cli.lists

Exit status: 0 done; 1 it ran and the answer is no (a check failed, the service could not start, or it refused or is
away); 2 the command line is wrong; 3 the setup is wrong (a setting, the database, a missing extra); 130 Ctrl-C.
"""

import os
import sys
from collections.abc import Sequence
from typing import Final

from offpolicy_monitor._version import __version__
from offpolicy_monitor.cli.command import EXIT_STATUSES, PROGRAM, Command, Parser, add_commands
from offpolicy_monitor.cli.database import DB
from offpolicy_monitor.cli.exports import EXPORT
from offpolicy_monitor.cli.lists import LISTS
from offpolicy_monitor.cli.posts import POSTS
from offpolicy_monitor.cli.questions import QUESTIONS
from offpolicy_monitor.cli.ray import RAY
from offpolicy_monitor.cli.serve import SERVE
from offpolicy_monitor.cli.tokens import TOKEN
from offpolicy_monitor.commandline import DONE, INTERRUPTED, NO, SETUP_WRONG
from offpolicy_monitor.errors import ConfigurationError, OffpolicyMonitorError, Unavailable

SUMMARY: Final = "Watches how far RL rollouts have drifted off-policy, and warns before the drift wrecks the run."
COMMANDS: Final[tuple[Command, ...]] = (SERVE, RAY, *POSTS, *QUESTIONS, DB, TOKEN, EXPORT, *LISTS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; answers the exit status."""
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()  # what a closed pipe refuses is refused here, and not when the interpreter ends
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _leave_stdout()
        return DONE


def parser() -> Parser:
    """The parser of the whole command line."""
    top = Parser(prog=PROGRAM, description=SUMMARY, epilog=EXIT_STATUSES)
    top.add_argument("--version", action="version", version=__version__)
    add_commands(top, COMMANDS, "command")
    return top


def _run(arguments: Sequence[str] | None) -> int:
    try:
        options = parser().parse_args(arguments)
        return int(options.handler(options))
    except OffpolicyMonitorError as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
        return SETUP_WRONG if isinstance(error, ConfigurationError | Unavailable) else NO


def _leave_stdout() -> None:
    """The reader of a pipe (head, less) has seen enough: what is still buffered goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
