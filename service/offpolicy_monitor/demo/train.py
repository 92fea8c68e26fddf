"""The demo's run: sample, train, post; again until it is told to stop.

It joins the trainer, the poster and the clock, and writes nothing itself: progress goes to `report`, figures into the
result.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from offpolicy_monitor.demo.config import DemoConfig
from offpolicy_monitor.demo.endpoint import Endpoint
from offpolicy_monitor.demo.post import Poster
from offpolicy_monitor.demo.progress import DemoResult, Progress, Tally, measure_progress
from offpolicy_monitor.demo.rollout import Rollout
from offpolicy_monitor.demo.trainer import Trainer

Report = Callable[[Progress], None]


def run_demo(
    config: DemoConfig,
    report: Report = lambda progress: None,
    stop: threading.Event | None = None,
    opening: Callable[[DemoConfig], None] = lambda config: None,
) -> DemoResult:
    """Train until `config.steps` or `config.seconds` is reached or `stop` is set, and post every gradient step.

    `opening` is called once the service has answered, `report` after each training step. torch has one thread
    meanwhile. Raises ConfigurationError if no service answers; what fails to be posted later is counted.
    """
    endpoint = Endpoint(config.url)
    endpoint.check()
    opening(config)
    with _one_thread():
        return _run(config, endpoint, report, stop or threading.Event())


def _run(config: DemoConfig, endpoint: Endpoint, report: Report, stop: threading.Event) -> DemoResult:
    trainer, tally, start = Trainer(config), Tally(), time.monotonic()
    poster = Poster(endpoint, config.run, config.profile, config.queue)
    try:
        while not stop.is_set() and not _reached(config, tally.steps, time.monotonic() - start):
            began = time.monotonic()
            rollouts = _train_step(trainer, tally, poster)
            now = time.monotonic()
            report(measure_progress(rollouts, tally.steps - 1, now - start, now - began, trainer.level.letters, poster))
    finally:
        poster.close()
    return tally.result(config.run, time.monotonic() - start, trainer.level.letters, poster)


def _train_step(trainer: Trainer, tally: Tally, poster: Poster) -> list[Rollout]:
    rollouts = trainer.rollouts(tally.steps)
    for message in trainer.gradient_steps(rollouts, tally.steps):
        poster.submit(message)
    trainer.level.record(sum(float(rollout.solved.float().mean()) for rollout in rollouts) / len(rollouts))
    tally.record(sum(float(rollout.rewards.mean()) for rollout in rollouts) / len(rollouts))
    return rollouts


@contextmanager
def _one_thread() -> Iterator[None]:
    """One intra-op thread: the other cores are the service's, and sums always run in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _reached(config: DemoConfig, steps: int, seconds: float) -> bool:
    return (config.steps is not None and steps >= config.steps) or (
        config.seconds is not None and seconds >= config.seconds
    )
