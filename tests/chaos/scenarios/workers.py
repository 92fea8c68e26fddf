"""`serve --workers` under load: a worker or the supervisor is killed, PostgreSQL stops, large bodies come at once."""

import os
import signal
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from tests.chaos.scenario import POSTGRES, Scenario
from tests.chaos.scenarios.greedy import BUDGET, COSTS_LESS_THAN, post_at_once
from tests.chaos.scenarios.server import stopped, under
from tests.chaos.stage import Stage
from tests.fixtures.workers import is_alive, leader_in

NUMBER: Final = 2
WORKERS: Final = {"OFFPOLICY_WORKERS": str(NUMBER)}
#: Seconds in which a dead worker is replaced, another leads, and workers end that have lost their supervisor.
REPLACED_WITHIN, LED_WITHIN, ENDED_WITHIN = 20.0, 10.0, 20.0


def killed(stage: Stage) -> None:
    """The worker that leads is killed, then the one that does not, and so on: each is replaced, and one leads."""
    stage.start(environment=WORKERS)
    with stage.load():
        for number in stage.trials():
            leader = leader_in(stage.log)
            victim = next(pid for pid in stage.workers() if (pid == leader) == (number % 2 == 0))
            with stage.recovering():
                os.kill(victim, signal.SIGKILL)
            led(stage, victim)
            replaced(stage, victim)
    # Who was connected to it has its connection cut, and sends again.
    stage.answered({200, 503}, unanswered=True)


def led(stage: Stage, killed: int, within: float = LED_WITHIN) -> None:
    """Another worker than that is to lead by now, or soon."""
    began = time.monotonic()
    stage.wait_for(lambda: leader_in(stage.log) not in (None, killed), within, "no other worker leads")
    stage.most("another leads after, s", time.monotonic() - began)


def replaced(stage: Stage, killed: int, within: float = REPLACED_WITHIN) -> None:
    """Another worker is to stand in its place, and serve."""
    began = time.monotonic()

    def serve() -> bool:
        pids = stage.workers()
        return killed not in pids and len(pids) == NUMBER and f'"answering":{NUMBER}' in stage.got("/readyz")[1]

    stage.wait_for(serve, within, "a worker that was killed was not replaced")
    stage.most("replaced after, s", time.monotonic() - began)


def orphaned(stage: Stage) -> None:
    """The first process is killed: the workers answer what is in flight and end, and the service is started again."""
    stage.start(environment=WORKERS)
    with stage.load():
        for _ in stage.trials():
            time.sleep(1.0)
            workers = stage.workers()
            stage.kill()
            all_ended(stage, workers)
            with stage.recovering():
                stage.start(environment=WORKERS)
    stage.answered({200, 503}, unanswered=True)


def all_ended(stage: Stage, workers: Sequence[int], within: float = ENDED_WITHIN) -> None:
    """No worker is to outlive its supervisor for long."""
    began = time.monotonic()
    stage.wait_for(lambda: not any(map(is_alive, workers)), within, "workers have outlived their supervisor")
    stage.most("workers ended after, s", time.monotonic() - began)


def greedy(stage: Stage) -> None:
    """Large bodies at once, of which all workers together may hold as many as one process."""
    stage.start(environment={**WORKERS, "OFFPOLICY_INFLIGHT_BYTES": str(BUDGET)})
    with stage.load(pause=0.1, ahead=4), stage.flat(COSTS_LESS_THAN):
        post_at_once(stage, stage.times)
    stage.outcome.trials = stage.times
    stage.answered({200, 503}, unanswered=True)


SCENARIOS = (
    Scenario("workers killed, one after the other", killed, (POSTGRES,), full=6),
    Scenario("supervisor of workers killed", orphaned, (POSTGRES,), full=2, quick=0),
    Scenario(
        "server stopped and started, workers",
        partial(under, stopped, environment=WORKERS),
        (POSTGRES,),
        full=2,
        quick=0,
    ),
    Scenario("large bodies at once, workers", greedy, (POSTGRES,), full=32, quick=0, limit=400),
)
