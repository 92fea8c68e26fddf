"""Console: a demo run's progress as text.

It knows how figures read, and nothing of how they came about.
"""

import time
from collections.abc import Callable
from typing import TextIO

from offpolicy_monitor.client.terminal import Terminal
from offpolicy_monitor.demo.config import DemoConfig
from offpolicy_monitor.demo.progress import DemoResult, Progress

BEHIND = 8  # posts that wait while nothing is wrong


class Console:
    """Writes to `stream`; `clock` gives seconds."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.terminal = Terminal(stream, clock)

    def opening(self, config: DemoConfig) -> None:
        """Say what runs and where to look."""
        url = config.url.rstrip("/")
        since = f" from step {config.fault_from} on" if config.fault_from else ""
        fault = f", fault {config.fault.name}={config.fault.strength:g}{since}" if config.fault else ""
        wrong = f", {config.scenario} from step {config.onset} on" if config.scenario != "healthy" else fault
        sampler = f"{config.engine} {config.sampler}" if config.engine else config.sampler
        self.terminal.say(f"run {config.run}: GRPO on anagrams, sampler {sampler}, lag {config.lag}{wrong}")
        self.terminal.say(f"page     {url}/runs/{config.run}")
        self.terminal.say(f"metrics  {url}/metrics")

    def report(self, progress: Progress) -> None:
        """Show one training step, unless another line was shown a moment ago."""
        self.terminal.offer(lambda: render_progress(progress))

    def closing(self, result: DemoResult) -> None:
        """Show the summary."""
        self.terminal.end()
        self.terminal.say(render_result(result))


def render_progress(progress: Progress) -> str:
    """One training step in one line."""
    text = (
        f"step {progress.step:4d}  reward {progress.reward:.3f}  right {progress.solved:4.0%}  "
        f"length {progress.length:.1f}  mismatch k3 {_nats(progress.mismatch_k3)}  "
        f"staleness k3 {_nats(progress.staleness_k3)}  {progress.rate:,.0f} tokens/s"
    )
    if progress.lost:
        return f"{text}  {progress.lost} posts lost: {progress.last_error}"
    if progress.waiting > BEHIND and progress.last_error:
        return f"{text}  {progress.waiting} posts wait: {progress.last_error}"
    return text


def render_result(result: DemoResult) -> str:
    """The whole run in one line, and a second one for the last failure where there was one."""
    text = (
        f"reward {_reward(result.reward_first)} -> {_reward(result.reward_last)}, "
        f"mean mismatch k3 {_nats(result.mismatch_k3)}, {result.steps} steps in {result.seconds:.0f} s, "
        f"{result.acknowledged} posts acknowledged, {result.failed} failed, {result.dropped} dropped"
    )
    return text + (f"\nlast failure: {result.last_error}" if result.last_error else "")


def _nats(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}" if value else "0"


def _reward(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
