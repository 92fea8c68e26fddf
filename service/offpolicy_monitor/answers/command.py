"""The subcommands that ask a running service: their arguments, what they ask, and what they print.

The only place here that knows the environment and the terminal. Exit status: 0 done; 1 the service refused or is away,
with a sentence that says what to do; 2 the command line is wrong; 3 OFFPOLICY_URL is no address.
"""

import argparse
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final, TypeVar

from offpolicy_monitor.answers import diagnosis as diagnosis_text
from offpolicy_monitor.answers import listing
from offpolicy_monitor.answers import run as run_text
from offpolicy_monitor.answers import whatif as whatif_text
from offpolicy_monitor.answers.history import as_csv, headline_paths, history
from offpolicy_monitor.answers.style import Style, style_of
from offpolicy_monitor.client.read import LOCAL, TIMEOUT, Reader, Unreachable, path
from offpolicy_monitor.errors import Refusal, Unavailable
from offpolicy_monitor.vocabulary import GAPS, RUN_NAME

DONE, NO = 0, 1
#: Runs that one page shows, and alerts.
RUNS, ALERTS = 200, 500
#: Steps apart from which two breaches of a rule are two rows, as on the pages.
APART: Final = 5
#: What a row says besides its thresholds.
OPTIONS: Final = ("statistic", "reduce", "divergence", "zero_advantage")
#: The row that is tried where the run names no correction.
STANDARD: Final = "opsm"
LEVELS: Final = ("token", "sequence", "geometric", "prefix")

Answers = dict[str, Any]
Result = TypeVar("Result")


def add_arguments(child: argparse.ArgumentParser) -> None:
    """Where the service is, and what is printed."""
    url = os.environ.get("OFFPOLICY_URL") or LOCAL
    child.add_argument("--url", default=url, metavar="URL", help=f"the service (OFFPOLICY_URL, {LOCAL})")
    child.add_argument(
        "--timeout", type=_seconds, default=TIMEOUT, metavar="S", help=f"seconds to wait for an answer ({TIMEOUT:g})"
    )


def _add_printing(child: argparse.ArgumentParser) -> None:
    add_arguments(child)
    _add_json(child)


def _add_json(child: argparse._ActionsContainer) -> None:
    child.add_argument("--json", action="store_true", help="the answers of the API as they are, for scripts")


def add_run(child: argparse.ArgumentParser) -> None:
    """The run that is asked about."""
    child.add_argument("run", type=_name, metavar="RUN", help="name of the run")


def add_runs_arguments(child: argparse.ArgumentParser) -> None:
    """The arguments of runs."""
    child.add_argument("-q", metavar="PATTERN", help="regular expression found in a name, or in a label as name=value")
    _add_printing(child)


def add_show_arguments(child: argparse.ArgumentParser) -> None:
    """The arguments of show."""
    add_run(child)
    add_arguments(child)
    how = child.add_mutually_exclusive_group()
    _add_json(how)
    how.add_argument("--csv", action="store_true", help="its history instead: a row a step, for backtest or a notebook")


def add_alerts_arguments(child: argparse.ArgumentParser) -> None:
    """The arguments of alerts."""
    child.add_argument("--run", type=_name, metavar="RUN", help="alerts of this run alone")
    child.add_argument("--state", choices=("active", "pending", "resolved"), help="alerts in this state alone")
    _add_printing(child)


def add_diagnose_arguments(child: argparse.ArgumentParser) -> None:
    """The arguments of diagnose."""
    add_run(child)
    child.add_argument("--from", type=_natural, dest="first", metavar="STEP", help="first step to look at")
    child.add_argument("--to", type=_natural, dest="last", metavar="STEP", help="last step to look at")
    _add_printing(child)


def add_whatif_arguments(child: argparse.ArgumentParser) -> None:
    """The arguments of whatif."""
    add_run(child)
    child.add_argument(
        "--method", metavar="NAME", help="a method, or a row that runs (the correction in use, else opsm)"
    )
    child.add_argument("--level", choices=LEVELS, help="what is kept or dropped as one (the row's)")
    child.add_argument("--gap", choices=GAPS, help="which gap is looked at (the row's)")
    child.add_argument("--threshold", type=_number, metavar="X", help="threshold to try (the row's)")
    child.add_argument("--bound", choices=("lower", "upper"), help="side of a rule with two (upper)")
    _add_printing(child)


def runs(options: argparse.Namespace) -> int:
    """All runs, worst first."""
    return _told(options, _runs)


def show(options: argparse.Namespace) -> int:
    """One run, or its history."""
    if options.csv:
        service = reader(options)
        with_advice(lambda: sys.stdout.write(_history(service, options.run)), options.url)
        return DONE
    return _told(options, _show)


def alerts(options: argparse.Namespace) -> int:
    """What fires."""
    return _told(options, _alerts)


def diagnose(options: argparse.Namespace) -> int:
    """What causes the mismatch."""
    return _told(options, _diagnose)


def whatif(options: argparse.Namespace) -> int:
    """What other thresholds would drop."""
    return _told(options, _whatif)


def reader(options: argparse.Namespace) -> Reader:
    """Of the service that the arguments name."""
    return Reader(options.url, options.timeout, os.environ.get("OFFPOLICY_TOKEN"))


Asked = tuple[Any, Callable[[Style], list[str]]]


def _told(options: argparse.Namespace, ask: Callable[[Reader, argparse.Namespace], Asked]) -> int:
    """Ask, then print the answers as JSON or as text."""
    with_advice(lambda: _print(*ask(reader(options), options), options.json), options.url)
    return DONE


def carried(options: argparse.Namespace, gather: Callable[[str, Callable[[str], Answers | None]], Answers]) -> Answers:
    """What `gather` asks of the service about the run, by calls; None for what there is not."""
    service = reader(options)

    def get(call: str) -> Answers | None:
        try:
            return service.get(f"/{call}")
        except Refusal as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    return with_advice(lambda: gather(options.run, get), options.url)


def with_advice(act: Callable[[], Result], url: str) -> Result:
    """Do it; what goes wrong with the service is raised with what to do about it."""
    try:
        return act()
    except Unreachable as error:
        raise Unreachable(f"{error}. Start one with `offpolicy-monitor serve`, or name its address by --url") from error
    except Unavailable as error:
        raise Refusal(400, error.kind, f"the service at {url} cannot answer now: {error.detail}. Try again") from error
    except KeyError as error:
        message = f"the service at {url} answers without {error}: it is of another release than this command"
        raise Unreachable(message) from error


def _print(answers: Any, text: Callable[[Style], Iterable[str]], as_json: bool) -> None:
    lines = [json.dumps(answers, indent=2, ensure_ascii=False)] if as_json else text(style_of(sys.stdout, os.environ))
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write("".join(f"{line}\n" for line in lines).encode(encoding, "replace").decode(encoding))


def _runs(service: Reader, options: argparse.Namespace) -> Asked:
    page = service.get("/v1/runs", {"order": "worst", "limit": RUNS, "q": options.q})
    return page, lambda style: listing.runs(page, style, time.time())


def _alerts(service: Reader, options: argparse.Namespace) -> Asked:
    found = service.alerts(options.run, options.state, APART, ALERTS)
    return found, lambda style: listing.alerts(found["alerts"], style)


def _show(service: Reader, options: argparse.Namespace) -> Asked:
    about = service.get(path(options.run))
    fields = [row.field for row in run_text.rows_of(about)]
    answers: Answers = {
        "run": about,
        "verdict": service.verdict(options.run),
        "series": service.get(path(options.run, "series"), {"field": fields, "by": "step", "points": run_text.POINTS}),
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
    row, query = _tried(service.get(path(options.run)), options)
    curve = _curve(service, options.run, query)
    names = whatif_text.bounds(curve)
    bound = options.bound if options.bound in names else names[-1]
    threshold = options.threshold
    if threshold is None:
        threshold = whatif_text.own_threshold(curve, bound, row)
    if threshold is None:
        return {"curve": curve}, lambda style: ["No step of this run has what this method looks at."]
    at = _curve(service, options.run, {**query, "threshold": threshold, "row": row})
    return {"curve": curve, "at": at}, lambda style: whatif_text.whatif(curve, at, bound, style)


def _tried(about: Mapping[str, Any], options: argparse.Namespace) -> tuple[str | None, Answers]:
    """The row of that name, or of that method, and the query for its curve; a method without a row stands alone."""
    wanted = options.method or about["correction"] or STANDARD
    asked = {"gap": options.gap, "level": options.level}
    given = {name: value for name, value in asked.items() if value is not None}
    named = [row for row in about["methods"] if row["name"] == wanted]
    like = [row for row in about["methods"] if row["method"] == wanted and given.items() <= row.items()]
    row = next(iter(named + like), None)
    if row is None:
        return None, {"method": wanted, **given}
    kept = {name: row[name] for name in ("method", "gap", "level", *OPTIONS) if name in row}
    return row["name"], {**kept, **given}


def _curve(service: Reader, run: str, query: Answers) -> Answers:
    """What-if by those options that this method's curves know; the service names those that it does not."""
    try:
        return service.get(path(run, "whatif"), query)
    except Refusal as error:
        unknown = next((one.field for one in error.errors if one.field in OPTIONS and one.field in query), None)
        if unknown is None:
            raise
        return _curve(service, run, {name: value for name, value in query.items() if name != unknown})


def _name(text: str) -> str:
    if not re.fullmatch(RUN_NAME, text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a run: letters, digits and ._- up to 128")
    return text


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _natural(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise ValueError(text)
    return value
