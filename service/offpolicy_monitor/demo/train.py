"""The demo's run: sample, train, log; again until it is told to stop.

It joins the trainer, a `Monitor` such as any trainer has, and the clock, and writes nothing itself: progress goes to
`report`, figures into the result.
"""

import threading
import time
from collections.abc import Callable
from contextlib import closing

import torch

from offpolicy_monitor.client.connection import Connection
from offpolicy_monitor.client.monitor import Monitor
from offpolicy_monitor.client.one_thread import one_thread
from offpolicy_monitor.client.read import Unreachable
from offpolicy_monitor.demo.answers import Answers
from offpolicy_monitor.demo.config import DemoConfig
from offpolicy_monitor.demo.progress import DemoResult, Progress, Tally, measure_progress
from offpolicy_monitor.demo.rollout import Rollout
from offpolicy_monitor.demo.trainer import Trainer

TIMEOUT = 10.0  # seconds for the service to say that it is there
Report = Callable[[Progress], None]


def run_demo(
    config: DemoConfig,
    report: Report = lambda progress: None,
    stop: threading.Event | None = None,
    opening: Callable[[DemoConfig], None] = lambda config: None,
) -> DemoResult:
    """Train until `config.steps` or `config.seconds` is reached or `stop` is set, and post every gradient step.

    `opening` is called once the service has answered, `report` after each training step. torch has one thread
    meanwhile. Raises Unreachable if no service answers; what fails to be posted later is counted.
    """
    _check(config.url)
    answers = Answers()
    monitor = Monitor(
        config.url, config.run, profile=config.profile, attempt=config.attempt, timeout=TIMEOUT, on_answer=answers.take
    )
    opening(config)
    with one_thread(torch):
        return _run(config, monitor, answers, report, stop or threading.Event())


def _check(url: str) -> None:
    """Raise Unreachable, saying what to do, unless a service answers here."""
    with closing(Connection(url, TIMEOUT, None)) as connection:
        try:
            answer = connection.exchange("GET", "/healthz")
            reason = "" if answer.status == 200 else answer.detail
        except OSError as error:
            reason = str(error) or type(error).__name__
    if reason:
        advice = "Start one with `offpolicy-monitor serve`, or name its address by --url"
        raise Unreachable(f"no service answers at {url}: {reason}. {advice}")


def _run(config: DemoConfig, monitor: Monitor, answers: Answers, report: Report, stop: threading.Event) -> DemoResult:
    trainer, tally, start = Trainer(config), Tally(), time.monotonic()
    try:
        while not stop.is_set() and not _reached(config, tally.steps, time.monotonic() - start):
            began = time.monotonic()
            rollouts = _train_step(trainer, tally, monitor)
            now = time.monotonic()
            took, level = now - began, trainer.level.letters
            report(measure_progress(rollouts, tally.steps - 1, now - start, took, level, answers, monitor.stats))
    finally:
        monitor.close(finished=False)  # so that what is active at its end stays to be looked at
    return tally.result(config.run, time.monotonic() - start, trainer.level.letters, answers, monitor.stats)


def _train_step(trainer: Trainer, tally: Tally, monitor: Monitor) -> list[Rollout]:
    rollouts = trainer.rollouts(tally.steps)
    for message in trainer.gradient_steps(rollouts, tally.steps):
        monitor.log(**message.arguments)
    trainer.level.record(sum(float(rollout.solved.float().mean()) for rollout in rollouts) / len(rollouts))
    tally.record(sum(float(rollout.rewards.mean()) for rollout in rollouts) / len(rollouts))
    return rollouts


def _reached(config: DemoConfig, steps: int, seconds: float) -> bool:
    return (config.steps is not None and steps >= config.steps) or (
        config.seconds is not None and seconds >= config.seconds
    )
