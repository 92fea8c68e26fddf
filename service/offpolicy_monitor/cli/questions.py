"""The subcommands that ask a running service and print, or write down, what its pages say."""

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from offpolicy_monitor.cli.command import Command, elsewhere, needed
from offpolicy_monitor.cli.doctor import DOCTOR
from offpolicy_monitor.commandline import DONE
from offpolicy_monitor.errors import ConfigurationError


def _asking(name: str, summary: str, examples: tuple[str, ...]) -> Command:
    return elsewhere(name, summary, examples, f"answers.arguments:add_{name}", f"answers.command:{name}")


def _add_report(child: argparse.ArgumentParser) -> None:
    arguments = needed("answers.arguments")
    arguments.add_run(child)
    child.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="file to write (RUN.html); one that is there goes"
    )
    arguments.add_service(child)


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


QUESTIONS: Final = (
    _asking(
        "runs",
        "list the runs of a service, worst first",
        (
            "$ runs",
            "$ runs -q '^llama' --url http://monitor:8900",
            "$ runs --json | jq -r '.runs[] | select(.verdict == \"skip\") | .run'",
        ),
    ),
    _asking(
        "show",
        "say what a run comes to: the sentence, its figures, its open alerts",
        ("$ show r1", "$ show r1 --json | jq -r .verdict.sentence", "$ show r1 --csv > r1.csv"),
    ),
    _asking(
        "alerts",
        "list what fires, since which step",
        ("$ alerts", "$ alerts --run r1 --state active"),
    ),
    _asking(
        "diagnose",
        "say what may cause a run's mismatch, with the evidence and what to try",
        ("$ diagnose r1", "$ diagnose r1 --from 96"),
    ),
    DOCTOR,
    _asking(
        "whatif",
        "say what a correction would keep out of the loss at other thresholds, with the setting to paste",
        (
            "$ whatif r1",
            "$ whatif r1 --method icepop --bound lower",
            "$ whatif r1 --method mask --level token --gap total --threshold 3",
            "$ whatif r1 --method opsm --method geometric_mask",
        ),
    ),
    Command(
        "report",
        "write the page of a run as one file to attach to an issue: pictures, figures and nothing from outside",
        ("$ report r1 -o report.html", "$ report r1 --url http://monitor:8900"),
        _add_report,
        _report,
    ),
    elsewhere(
        "backtest",
        "say what the rules would have told of a history of figures, a file or a stored run (status 1: critical)",
        (
            "$ backtest wandb_export.csv --profile moe_bf16",
            "$ backtest --run r1 --rules rules.json",
            "$ show r1 --csv > r1.csv && $ backtest r1.csv --json | jq '.alerts[0]'",
        ),
        "backtest.command:add_arguments",
        "backtest.command:main",
    ),
)
