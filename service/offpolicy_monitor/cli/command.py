"""A subcommand as a row: what it says of itself, its arguments, and what it does.

What a row needs is imported when its own help is asked for or when it runs, so that the base install (numpy alone)
prints every help text, and a missing extra is named instead of traced.
"""

import argparse
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from offpolicy_monitor.errors import ConfigurationError

PROGRAM: Final = "offpolicy-monitor"
EXIT_STATUSES: Final = (
    "Exit status: 0 done, 1 the answer is no or no service answers, 2 wrong command line, 3 wrong setup,\n"
    "130 interrupted by Ctrl-C."
)


@dataclass(frozen=True)
class Command:
    """One subcommand: `examples` are what follows the program's name, one per line; `run` answers the exit status."""

    name: str
    summary: str
    examples: tuple[str, ...]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]

    @property
    def epilog(self) -> str:
        """The examples, as they are typed, and the exit statuses."""
        lines = "\n".join(f"  {line.replace('$', PROGRAM)}" for line in self.examples)
        return f"examples:\n{lines}\n\n{EXIT_STATUSES}"


class Parser(argparse.ArgumentParser):
    """Of a subcommand: has its arguments from the moment on that they are wanted."""

    def __init__(self, command: Command | None = None, **options: Any) -> None:
        super().__init__(**options, formatter_class=argparse.RawDescriptionHelpFormatter)
        self._command = command

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The same; what the command needs is imported now."""
        command, self._command = self._command, None
        if command is not None:
            command.add_arguments(self)
        return super().parse_known_args(args, namespace)


def add_commands(parent: argparse.ArgumentParser, commands: Sequence[Command], title: str) -> None:
    """Subcommands of a parser; the one that is chosen is the `handler`."""
    group = parent.add_subparsers(title="commands", dest=title, metavar="COMMAND", required=True, parser_class=Parser)
    for command in commands:
        child = group.add_parser(
            command.name,
            command=command,
            help=command.summary,
            description=command.summary[0].upper() + command.summary[1:] + ".",
            epilog=command.epilog,
        )
        child.set_defaults(handler=command.run)


def group_of(name: str, summary: str, commands: Sequence[Command]) -> Command:
    """A subcommand that has subcommands: their first examples are its own."""

    def unchosen(options: argparse.Namespace) -> int:
        raise AssertionError(f"argparse asks for a command of {name}")

    examples = tuple(command.examples[0] for command in commands)
    return Command(name, summary, examples, lambda child: add_commands(child, commands, f"{name}_command"), unchosen)


def elsewhere(name: str, summary: str, examples: tuple[str, ...], add: str, run: str) -> Command:
    """A row whose two functions are in modules of this package: "answers.command:runs"."""

    def add_arguments(child: argparse.ArgumentParser) -> None:
        try:
            _function(add)(child)
        except ConfigurationError:
            # A library is missing that the arguments are read off; which one is said when the command runs.
            child.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)

    return Command(name, summary, examples, add_arguments, lambda options: int(_function(run)(options)))


def _function(place: str) -> Callable[[Any], Any]:
    module, _, name = place.partition(":")
    function: Callable[[Any], Any] = getattr(needed(module), name)
    return function


def needed(module: str, extra: str = "server") -> Any:
    """Import a module of this package; ConfigurationError names the extra where a library it needs is missing."""
    try:
        return importlib.import_module(f"offpolicy_monitor.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "offpolicy_monitor":
            raise
        message = f"{error.name} is not installed: pip install 'offpolicy-monitor[{extra}]'"
        raise ConfigurationError(message) from error


def add_json(child: argparse.ArgumentParser) -> None:
    """The argument that asks for JSON."""
    child.add_argument("--json", action="store_true", help="one JSON document, for scripts")


def no_arguments(child: argparse.ArgumentParser) -> None:
    """None."""
