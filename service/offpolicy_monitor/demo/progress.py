"""What a demo run tells: a Progress after each training step, a DemoResult at the end.

Values and the way they are counted. It knows neither terminals nor torch's training.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from offpolicy_monitor.demo.answers import Answers
from offpolicy_monitor.demo.rollout import Rollout

REWARD_WINDOW = 10  # training steps that the first and the last reward of the summary are means of


@dataclass(frozen=True)
class Progress:
    """One training step over its answers: rate in tokens per second, k3 (nats) as the service last answered.

    `waiting` and `lost` count posts of the whole run; `last_error` is the last thing that went wrong with any.
    """

    step: int
    seconds: float
    level: int
    reward: float
    solved: float
    length: float
    rate: float
    mismatch_k3: float | None
    staleness_k3: float | None
    waiting: int
    lost: int
    last_error: str | None


@dataclass(frozen=True)
class DemoResult:
    """The whole run. Rewards are means over the first and the last training steps, k3 (nats) over all answers."""

    run: str
    steps: int
    seconds: float
    level: int
    reward_first: float | None
    reward_last: float | None
    mismatch_k3: float | None
    staleness_k3: float | None
    acknowledged: int
    failed: int
    dropped: int
    last_error: str | None


@dataclass
class Tally:
    """Rewards of the first and the last training steps; constant memory however long the run."""

    steps: int = 0
    first: list[float] = field(default_factory=list)
    last: deque[float] = field(default_factory=lambda: deque(maxlen=REWARD_WINDOW))

    def record(self, reward: float) -> None:
        """Take in one training step's mean reward."""
        self.steps += 1
        self.last.append(reward)
        if len(self.first) < REWARD_WINDOW:
            self.first.append(reward)

    def result(self, run: str, seconds: float, level: int, answers: Answers, stats: Mapping[str, Any]) -> DemoResult:
        """The result, once the monitor is closed; `stats` are its own."""
        return DemoResult(
            run=run,
            steps=self.steps,
            seconds=seconds,
            level=level,
            reward_first=_mean(self.first),
            reward_last=_mean(list(self.last)),
            mismatch_k3=answers.mean("mismatch"),
            staleness_k3=answers.mean("staleness"),
            acknowledged=stats["sent"],
            failed=stats["errors"],
            dropped=stats["dropped"],
            last_error=stats["last_error"],
        )


def measure_progress(
    rollouts: Sequence[Rollout],
    step: int,
    seconds: float,
    took: float,
    level: int,
    answers: Answers,
    stats: Mapping[str, Any],
) -> Progress:
    """Figures of training step `step`, `seconds` into the run, which `took` that many seconds."""
    written = sum(len(rollout.rewards) for rollout in rollouts)
    tokens = sum(int(rollout.mask.sum()) for rollout in rollouts)
    return Progress(
        step=step,
        seconds=seconds,
        level=level,
        reward=sum(float(rollout.rewards.sum()) for rollout in rollouts) / written,
        solved=sum(int(rollout.solved.sum()) for rollout in rollouts) / written,
        length=tokens / written,
        rate=tokens / took,
        mismatch_k3=answers.latest.get("mismatch"),
        staleness_k3=answers.latest.get("staleness"),
        waiting=stats["pending"],
        lost=stats["errors"] + stats["dropped"],
        last_error=stats["last_error"],
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
