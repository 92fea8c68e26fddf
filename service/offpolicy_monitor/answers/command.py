"""The subcommands that ask a running service: what each asks, and what it prints.

Answers the exit status; a service that refuses or is away is raised as an error that says what to do.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final

from offpolicy_monitor.answers import diagnosis as diagnosis_text
from offpolicy_monitor.answers import lists
from offpolicy_monitor.answers import run as run_text
from offpolicy_monitor.answers import whatif as whatif_text
from offpolicy_monitor.answers.advice import with_advice
from offpolicy_monitor.answers.doctor import findings
from offpolicy_monitor.answers.history import as_csv, headline_paths, history
from offpolicy_monitor.answers.style import Style, style_of
from offpolicy_monitor.answers.trial import trial
from offpolicy_monitor.client.read import Reader, path
from offpolicy_monitor.commandline import DONE, NO
from offpolicy_monitor.errors import Refusal

#: Runs that one page shows, and alerts.
RUNS: Final = 200
ALERTS: Final = 500
#: Steps apart from which two breaches of a rule are two rows, as on the pages.
APART: Final = 5

Answers = dict[str, Any]
Asked = tuple[Any, Callable[[Style], list[str]]]


def runs(options: argparse.Namespace) -> int:
    """All runs, worst first."""
    return _told(options, _runs)


def show(options: argparse.Namespace) -> int:
    """One run, or its history."""
    if options.csv:
        service = reader(options)
        with_advice(service, options.run, lambda: sys.stdout.write(_history(service, options.run)))
        return DONE
    return _told(options, _show)


def alerts(options: argparse.Namespace) -> int:
    """What fires."""
    return _told(options, _alerts)


def diagnose(options: argparse.Namespace) -> int:
    """What causes the mismatch."""
    return _told(options, _diagnose)


def doctor(options: argparse.Namespace) -> int:
    """What is wrong with the way a run is posted; the answer is no where a finding is a warning."""
    service = reader(options)
    answer = with_advice(service, options.run, lambda: service.checks(options.run))
    _print(answer, lambda style: findings(answer, style), options.json)
    return NO if any(one["severity"] == "warning" for one in answer["findings"]) else DONE


def whatif(options: argparse.Namespace) -> int:
    """What other thresholds would drop."""
    return _told(options, _whatif)


def reader(options: argparse.Namespace) -> Reader:
    """Of the service that the arguments name."""
    return Reader(options.url, options.timeout, os.environ.get("OFFPOLICY_TOKEN"))


def carried(options: argparse.Namespace, gather: Callable[[str, Callable[[str], Answers | None]], Answers]) -> Answers:
    """What `gather` asks of the service about the run, by calls; None for what the run does not have."""
    service = reader(options)

    def get(call: str) -> Answers | None:
        try:
            return service.get(f"/{call}")
        except Refusal as error:
            if error.status == HTTPStatus.NOT_FOUND and error.kind != "unknown-run":
                return None
            raise

    return with_advice(service, options.run, lambda: gather(options.run, get))


def _told(options: argparse.Namespace, ask: Callable[[Reader, argparse.Namespace], Asked]) -> int:
    """Ask, then print the answers as JSON or as text."""
    service = reader(options)
    with_advice(service, getattr(options, "run", None), lambda: _print(*ask(service, options), options.json))
    return DONE


def _print(answers: Any, text: Callable[[Style], Iterable[str]], as_json: bool) -> None:
    lines = [json.dumps(answers, indent=2, ensure_ascii=False)] if as_json else text(style_of(sys.stdout, os.environ))
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write("".join(f"{line}\n" for line in lines).encode(encoding, "replace").decode(encoding))


def _runs(service: Reader, options: argparse.Namespace) -> Asked:
    page = service.get("/v1/runs", {"order": "worst", "limit": RUNS, "q": options.q})
    return page, lambda style: lists.runs(page, style, time.time())


def _alerts(service: Reader, options: argparse.Namespace) -> Asked:
    if options.run:
        service.get(path(options.run))  # the alerts of a run that is not there are an empty list
    found = service.alerts(options.run, options.state, APART, ALERTS)
    return found, lambda style: lists.alerts(found["alerts"], style)


def _show(service: Reader, options: argparse.Namespace) -> Asked:
    about = service.get(path(options.run))
    fields = [row.field for row in run_text.rows_of(about)]
    answers: Answers = {
        "run": about,
        "verdict": service.verdict(options.run),
        "series": service.series(options.run, fields, by="step", points=run_text.POINTS),
        "alerts": service.alerts(options.run, None, APART, ALERTS),
    }
    return answers, lambda style: [
        *run_text.run(about, answers["verdict"], answers["series"]["series"], answers["alerts"]["alerts"], style),
        "",
        style.paint(f"{service.url}/runs/{options.run}", "quiet"),
    ]


def _history(service: Reader, run: str) -> str:
    return as_csv(history(service, run, headline_paths(service)))


def _diagnose(service: Reader, options: argparse.Namespace) -> Asked:
    said, found = service.verdict(options.run), service.diagnosis(options.run, options.first, options.last)
    return {"verdict": said, "diagnosis": found}, lambda style: [
        *run_text.sentence(said, style),
        "",
        *diagnosis_text.diagnosis(found, style),
    ]


def _whatif(service: Reader, options: argparse.Namespace) -> Asked:
    about = service.get(path(options.run))
    trials = [trial(service, about, name, options) for name in options.method or [None]]
    answers = [tried.answers for tried in trials]
    return answers[0] if len(answers) == 1 else {"methods": answers}, lambda style: whatif_text.whatif(trials, style)
