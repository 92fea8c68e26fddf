"""The command `offpolicy-monitor`. Each subcommand is a row of COMMANDS; what it needs is imported when it runs.

So the base install (numpy alone) prints every help text, and a missing extra is named instead of traced.

Exit status: 0 done; 1 it ran and the answer is no (a check failed, the service could not start, or it refused or is
away); 2 the command line is wrong; 3 the setup is wrong (a setting, the database, a missing extra).
"""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offpolicy_monitor._version import __version__
from offpolicy_monitor.errors import ConfigurationError, OffpolicyMonitorError, Unavailable
from offpolicy_monitor.export import DEFAULT_SERVICE_URL, checked_url, export

if TYPE_CHECKING:
    from offpolicy_monitor.server.process import Listening
    from offpolicy_monitor.settings import Settings

PROGRAM = "offpolicy-monitor"
DONE, NO, SETUP_WRONG = 0, 1, 3
EXIT_STATUSES = "Exit status: 0 done, 1 the answer is no or no service answers, 2 wrong command line, 3 wrong setup."


@dataclass(frozen=True)
class Command:
    """One subcommand: what it says of itself, its arguments, and what it does (answers the exit status)."""

    name: str
    summary: str
    examples: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; answers the exit status."""
    options = parser().parse_args(arguments)
    try:
        return int(options.handler(options))
    except OffpolicyMonitorError as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
        return SETUP_WRONG if isinstance(error, ConfigurationError | Unavailable) else NO
    except BrokenPipeError:
        # The reader of a pipe (head, less) has seen enough; the interpreter must not flush into it again.
        sys.stdout = None
        return DONE


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = argparse.ArgumentParser(
        PROGRAM, description=_SUMMARY, epilog=EXIT_STATUSES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--version", action="version", version=__version__)
    _add_commands(top, COMMANDS, "command")
    return top


def _add_commands(parent: argparse.ArgumentParser, commands: Sequence[Command], title: str) -> None:
    group = parent.add_subparsers(title="commands", dest=title, metavar="COMMAND", required=True)
    for command in commands:
        child = group.add_parser(
            command.name,
            help=command.summary,
            description=command.summary[0].upper() + command.summary[1:] + ".",
            epilog=f"examples:\n{command.examples}\n\n{EXIT_STATUSES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        child.set_defaults(handler=command.run)
        command.add_arguments(child)


def needed(module: str, extra: str = "server") -> Any:
    """Import a module of this package; ConfigurationError names the extra where a library it needs is missing."""
    try:
        return importlib.import_module(f"offpolicy_monitor.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "offpolicy_monitor":
            raise
        message = f"{error.name} is not installed: pip install 'offpolicy-monitor[{extra}]'"
        raise ConfigurationError(message) from error


def read_settings(**overrides: object) -> "Settings":
    """Settings from the environment, with the flags that were given in their place."""
    module = needed("settings")
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        settings: Settings = module.Settings(**given)
    except ValueError as error:
        raise ConfigurationError(_setting_errors(error, module.Settings)) from error
    return settings


def _setting_errors(error: ValueError, settings: Any) -> str:
    problems: list[Any] = getattr(error, "errors", list)()
    lines = [f"{settings.variable(str(item['loc'][0]))}: {item['msg']}" for item in problems]
    return "\n".join(lines) or str(error)


def _serve_arguments(child: argparse.ArgumentParser) -> None:
    child.add_argument("--host", help="address to bind (OFFPOLICY_HOST, 127.0.0.1)")
    child.add_argument("--port", type=int, help="port to bind, 0 for a free one (OFFPOLICY_PORT, 8900)")
    child.add_argument("--database-url", metavar="URL", help="SQLAlchemy URL (OFFPOLICY_DATABASE_URL, a SQLite file)")
    child.add_argument("--insecure", action="store_true", help="allow an address that other machines can reach")
    child.add_argument(
        "--migrate",
        action=argparse.BooleanOptionalAction,
        help="bring the database's schema up to date first (default: yes for SQLite, no for PostgreSQL)",
    )


def _serve(options: argparse.Namespace) -> int:
    settings = read_settings(host=options.host, port=options.port, database_url=options.database_url)
    needed("logs").configure(settings.log_level, settings.log_format)
    process = needed("server.process")
    embedded = settings.database_url.startswith("sqlite")
    if options.migrate if options.migrate is not None else embedded:
        needed("store.migrate").upgrade(settings.database_url)
    else:
        _refuse_other_schema(settings.database_url)
    process.serve(settings, options.insecure, lambda listening: _say_where(listening, settings))
    return int(process.end(DONE))


def _refuse_other_schema(url: str) -> None:
    """ConfigurationError where the database is not at the revision that this version needs."""
    advice = needed("store.migrate").outdated(url, ", or pass --migrate")
    if advice is not None:
        raise ConfigurationError(advice)


def _say_where(listening: "Listening", settings: "Settings") -> None:
    """Say where everything is, once the service listens."""
    base_url = listening.base_url
    lines = {
        "page": f"{base_url}/",
        "API docs": f"{base_url}/docs",
        "metrics": f"{base_url}/metrics",
        "post to": f"{base_url}/v1/runs/RUN/batches",
        "database": _without_password(settings.database_url),
        "device": listening.device,
    }
    sys.stdout.write(f"{PROGRAM} {__version__} is serving\n")
    sys.stdout.writelines(f"  {name:<9} {value}\n" for name, value in lines.items())
    sys.stdout.flush()


def _without_password(url: str) -> str:
    return str(needed("store.session").parse_url(url).render_as_string(hide_password=True))


def _demo_arguments(child: argparse.ArgumentParser) -> None:
    """The demo's own arguments, where its libraries are there to say them; else it says at run time what is missing."""
    try:
        needed("demo.cli").add_arguments(child)
    except ConfigurationError:
        child.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _demo(options: argparse.Namespace) -> int:
    status: int = needed("demo.cli").main(options)
    return status


def _tail(options: argparse.Namespace) -> int:
    status: int = needed("client.files.command").tail(options)
    return status


def _replay(options: argparse.Namespace) -> int:
    status: int = needed("client.files.command").replay(options)
    return status


def _asking(name: str, summary: str, examples: str) -> Command:
    """A subcommand that asks a running service and prints what its pages say."""
    return Command(
        name,
        summary,
        examples,
        lambda child: getattr(needed("answers.command"), f"add_{name}_arguments")(child),
        lambda options: int(getattr(needed("answers.command"), name)(options)),
    )


def _report_arguments(child: argparse.ArgumentParser) -> None:
    command = needed("answers.command")
    command.add_run(child)
    child.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="file to write (RUN.html); one that is there goes"
    )
    command.add_arguments(child)


def _report(options: argparse.Namespace) -> int:
    command, report = needed("answers.command"), needed("pages.report")
    target = options.output or Path(f"{options.run}.html")
    found = command.carried(options, report.answers)
    text: str = report.document(options.run, found, command.reader(options).url, time.time())
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{target} cannot be written: {error.strerror}") from error
    sys.stdout.write(f"{target}: {len(text.encode()) / 1000:,.0f} kB, opens in any browser without a service\n")
    return DONE


def _backtest_arguments(child: argparse.ArgumentParser) -> None:
    try:
        needed("backtest.command").add_arguments(child)
    except ConfigurationError:
        child.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _backtest(options: argparse.Namespace) -> int:
    status: int = needed("backtest.command").main(options)
    return status


def _database_argument(child: argparse.ArgumentParser) -> None:
    child.add_argument("--database-url", metavar="URL", help="SQLAlchemy URL (OFFPOLICY_DATABASE_URL, a SQLite file)")


def _vacuum_arguments(child: argparse.ArgumentParser) -> None:
    _database_argument(child)
    child.add_argument("--full", action="store_true", help="on PostgreSQL: write the tables anew, which locks each")


def _db_arguments(child: argparse.ArgumentParser) -> None:
    _add_commands(child, DB_COMMANDS, "db_command")


def _db_upgrade(options: argparse.Namespace) -> int:
    settings = read_settings(database_url=options.database_url)
    revision = needed("store.migrate").upgrade(settings.database_url)
    sys.stdout.write(f"{_without_password(settings.database_url)} is at revision {revision}\n")
    return DONE


def _db_check(options: argparse.Namespace) -> int:
    settings = read_settings(database_url=options.database_url)
    problems = needed("store.migrate").check(settings.database_url)
    sys.stdout.writelines(f"{problem}\n" for problem in problems or ["the database is right"])
    return NO if problems else DONE


def _db_vacuum(options: argparse.Namespace) -> int:
    settings = read_settings(database_url=options.database_url)
    size = needed("store.space").vacuum(settings.database_url, options.full)
    sys.stdout.write(f"{_without_password(settings.database_url)} takes {size / 1e6:,.1f} MB\n")
    return DONE


def _export_arguments(child: argparse.ArgumentParser) -> None:
    _add_commands(child, EXPORT_COMMANDS, "export_command")


def _target_arguments(child: argparse.ArgumentParser) -> None:
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


def _json_argument(child: argparse.ArgumentParser) -> None:
    child.add_argument("--json", action="store_true", help="one JSON document, for scripts")


def _methods(options: argparse.Namespace) -> int:
    rows = needed("catalogue").preset_rows()
    _print_rows(rows, options.json)
    return DONE


def _settings(options: argparse.Namespace) -> int:
    _print_rows(needed("catalogue").setting_rows(read_settings()), options.json)
    return DONE


def _print_rows(rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    """A table for people, or the rows as JSON."""
    if as_json:
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return
    cells = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")


def _version(options: argparse.Namespace) -> int:
    sys.stdout.write(f"{__version__}\n")
    return DONE


def _none(child: argparse.ArgumentParser) -> None:
    """No arguments."""


_SUMMARY = "Watches how far RL rollouts have drifted off-policy, and warns before the drift wrecks the run."

DB_COMMANDS: tuple[Command, ...] = (
    Command(
        "upgrade",
        "make the database, or bring its schema up to date",
        f"  {PROGRAM} db upgrade\n  {PROGRAM} db upgrade --database-url postgresql://user@host/offpolicy",
        _database_argument,
        _db_upgrade,
    ),
    Command(
        "check",
        "say whether the database is whole and has the schema that this version needs (status 1: no)",
        f"  {PROGRAM} db check && echo fine",
        _database_argument,
        _db_check,
    ),
    Command(
        "vacuum",
        "give the room that deleted and old rows have left back to the file system",
        f"  {PROGRAM} db vacuum          # SQLite: with the service stopped, and as much room again meanwhile\n"
        f"  {PROGRAM} db vacuum --full   # PostgreSQL: tables are written anew, each locked meanwhile",
        _vacuum_arguments,
        _db_vacuum,
    ),
)

EXPORT_COMMANDS: tuple[Command, ...] = (
    Command(
        "grafana",
        "write the dashboards as JSON, to import or to provision",
        f"  {PROGRAM} export grafana --to /etc/grafana/dashboards\n"
        f"  {PROGRAM} export grafana --to dashboards --service-url https://monitor.example.com",
        _target_arguments,
        _export,
    ),
    Command(
        "prometheus",
        "write the alert and recording rules for Prometheus",
        f"  {PROGRAM} export prometheus --to /etc/prometheus/rules\n"
        f"  {PROGRAM} export prometheus --to rules --service-url https://monitor.example.com",
        _target_arguments,
        _export,
    ),
)

COMMANDS: tuple[Command, ...] = (
    Command(
        "serve",
        "run the service",
        f"  {PROGRAM} serve\n  {PROGRAM} serve --port 0 --database-url sqlite:///run.db\n"
        f"  OFFPOLICY_DATABASE_URL=postgresql://user@host/offpolicy {PROGRAM} serve --migrate",
        _serve_arguments,
        _serve,
    ),
    Command(
        "demo",
        "train a small policy by GRPO on the CPU and post every gradient step to a running service",
        f"  {PROGRAM} demo\n  {PROGRAM} demo --forever",
        _demo_arguments,
        _demo,
    ),
    Command(
        "tail",
        "follow a folder that a trainer dumps its batches into, and post them as they come",
        f"  {PROGRAM} tail outputs/run/token_exports --format prime-rl --run r1\n"
        f"  {PROGRAM} tail logs/exp_001 --format nemo-rl --run r1 --url http://monitor:8900\n"
        f"  {PROGRAM} tail dumps --format jsonl --run r1 --once",
        lambda child: needed("client.files.command").add_tail_arguments(child),
        _tail,
    ),
    Command(
        "replay",
        "post finished dump files, with a progress bar",
        f"  {PROGRAM} replay train_data_step*.jsonl --run r1\n"
        f"  {PROGRAM} replay dumps/train_data --format slime --run r1 --from 100 --to 200 --dry-run",
        lambda child: needed("client.files.command").add_replay_arguments(child),
        _replay,
    ),
    _asking(
        "runs",
        "list the runs of a service, worst first",
        f"  {PROGRAM} runs\n  {PROGRAM} runs -q '^llama' --url http://monitor:8900\n"
        f"  {PROGRAM} runs --json | jq -r '.runs[] | select(.verdict == \"skip\") | .run'",
    ),
    _asking(
        "show",
        "say what a run comes to: the sentence, its figures, its open alerts",
        f"  {PROGRAM} show r1\n  {PROGRAM} show r1 --json | jq -r .verdict.sentence\n"
        f"  {PROGRAM} show r1 --csv > r1.csv",
    ),
    _asking(
        "alerts",
        "list what fires, since which step",
        f"  {PROGRAM} alerts\n  {PROGRAM} alerts --run r1 --state active",
    ),
    _asking(
        "diagnose",
        "say what may cause a run's mismatch, with the evidence and what to try",
        f"  {PROGRAM} diagnose r1\n  {PROGRAM} diagnose r1 --from 96",
    ),
    _asking(
        "whatif",
        "say what a correction would keep out of the loss at other thresholds, with the setting to paste",
        f"  {PROGRAM} whatif r1\n  {PROGRAM} whatif r1 --method icepop --bound lower\n"
        f"  {PROGRAM} whatif r1 --method mask --level token --gap total --threshold 3",
    ),
    Command(
        "report",
        "write the page of a run as one file to attach to an issue: pictures, figures and nothing from outside",
        f"  {PROGRAM} report r1 -o report.html\n  {PROGRAM} report r1 --url http://monitor:8900",
        _report_arguments,
        _report,
    ),
    Command(
        "backtest",
        "say what the rules would have told of a history of figures, a file or a stored run (status 1: critical)",
        f"  {PROGRAM} backtest wandb_export.csv --profile moe_bf16\n"
        f"  {PROGRAM} backtest --run r1 --rules rules.json\n"
        f"  {PROGRAM} show r1 --csv > r1.csv && {PROGRAM} backtest r1.csv --json | jq '.alerts[0]'",
        _backtest_arguments,
        _backtest,
    ),
    Command("db", "look after the database", f"  {PROGRAM} db upgrade\n  {PROGRAM} db check", _db_arguments, _version),
    Command(
        "export",
        "write dashboards and rules for Grafana and Prometheus",
        f"  {PROGRAM} export grafana --to dashboards\n  {PROGRAM} export prometheus --to rules",
        _export_arguments,
        _version,
    ),
    Command(
        "methods",
        "list the corrections that every batch is tried on, with their thresholds",
        f"  {PROGRAM} methods\n  {PROGRAM} methods --json",
        _json_argument,
        _methods,
    ),
    Command(
        "settings",
        "list every setting: environment variable, value in force, meaning",
        f"  {PROGRAM} settings\n  OFFPOLICY_PORT=9000 {PROGRAM} settings --json",
        _json_argument,
        _settings,
    ),
    Command("version", "print the version", f"  {PROGRAM} version", _none, _version),
)

if __name__ == "__main__":
    sys.exit(main())
