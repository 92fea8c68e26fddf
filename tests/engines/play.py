"""Plays a case: the demo with a real engine in .venv-engines, against a service of this environment."""

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.engines.outcome import BEFORE, Named, Outcome, told_of
from tests.engines.plan import ONSET, STEPS, Case
from tests.fixtures.service import clean_environment

ROOT: Final = Path(__file__).resolve().parents[2]
PYTHON: Final = ROOT / ".venv-engines" / "bin" / "python"
Ask = Callable[[str], Any]


def asks(url: str) -> Ask:
    """What answers GET requests of a service."""

    def ask(path: str) -> Any:
        with urllib.request.urlopen(f"{url}{path}", timeout=60) as answer:
            return json.load(answer)

    return ask


def demo(case: Case, url: str, log: Path) -> list[str]:
    """Train; the command is returned. Raises RuntimeError with the end of its output where it fails."""
    onset = ("--onset", str(ONSET)) if planted(case) else ()
    arguments = ["demo", "--engine", case.engine, *case.arguments, *onset, "--steps", str(STEPS)]
    command = [str(PYTHON), "-m", "offpolicy_monitor.cli", *arguments, "--url", url, "--run", case.run]
    environment = {**clean_environment(), "PYTHONPATH": str(ROOT / "service"), "OMP_NUM_THREADS": "1"}
    with log.open("wb") as lines:
        status = subprocess.run(
            command, env=environment, stdout=lines, stderr=subprocess.STDOUT, check=False
        ).returncode
    if status:
        raise RuntimeError(f"{case.run} failed with status {status}\n{log.read_text(errors='replace')[-3000:]}")
    return arguments


def planted(case: Case) -> bool:
    """Whether something is planted at all."""
    return "--fault" in case.arguments or "--scenario" in case.arguments


def play(case: Case, url: str, folder: Path) -> Outcome:
    """Train one run, and read what was told of it."""
    began = time.monotonic()
    arguments = demo(case, url, folder / f"{case.run}.log")
    return outcome_of(case, arguments, time.monotonic() - began, asks(url))


def outcome_of(case: Case, arguments: list[str], seconds: float, ask: Ask) -> Outcome:
    """What the service says of a run that has ended."""
    onset = ONSET if planted(case) else 0
    series = ask(f"/v1/runs/{case.run}/series?field=gaps.mismatch.k3")
    internal = ask(f"/v1/runs/{case.run}/series?field=noise_floor.attribution.engine_internal")
    alerts = ask(f"/v1/alerts?run={case.run}&limit=500")["alerts"]
    return Outcome(
        engine=case.engine,
        planted=case.planted,
        arguments=arguments,
        right=case.right,
        wanted=case.told,
        onset=onset,
        steps=STEPS,
        seconds=round(seconds, 1),
        k3_before=_usual(series, 0, onset),
        k3_after=_usual(series, onset, STEPS),
        alerts=told_of(alerts),
        internal=_usual(internal, onset, STEPS),
        diagnoses=[diagnosed(case.run, max(onset - BEFORE, 0), step, ask) for step in range(onset, STEPS)],
    )


def diagnosed(run: str, first: int, last: int, ask: Ask) -> Named:
    """What someone is told who asks at that step what it looks like."""
    best = ask(f"/v1/runs/{run}/diagnosis?from={first}&to={last}")["hypotheses"][0]
    return Named(last, best["name"], round(best["score"], 3))


def _usual(series: Mapping[str, Any], first: int, last: int) -> float | None:
    values = [
        v for step, v in zip(series["step"], series["value"], strict=True) if first <= step < last and v is not None
    ]
    return float(f"{median(values):.3g}") if values else None
