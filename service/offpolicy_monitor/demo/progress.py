"""What a demo run tells: a Progress after each training step, a DemoResult at the end.

Values and the way they are counted. It knows neither terminals nor torch's training.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from offpolicy_monitor.demo.post import Poster
from offpolicy_monitor.demo.rollout import Rollout

REWARD_WINDOW = 10  # training steps that the first and the last reward of the summary are means of


@dataclass(frozen=True)
class Progress:
    """One training step over its answers: rate in tokens a second, k3 (nats) as the service last answered."""

    step: int
    seconds: float
    level: int
    reward: float
    solved: float
    length: float
    rate: float
    mismatch_k3: float | None
    staleness_k3: float | None
    failed: int
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

    def result(self, run: str, seconds: float, level: int, poster: Poster) -> DemoResult:
        """The result, once the poster is closed."""
        return DemoResult(
            run=run,
            steps=self.steps,
            seconds=seconds,
            level=level,
            reward_first=_mean(self.first),
            reward_last=_mean(list(self.last)),
            mismatch_k3=poster.mean("mismatch"),
            staleness_k3=poster.mean("staleness"),
            acknowledged=poster.acknowledged,
            failed=poster.failed,
            dropped=poster.dropped,
            last_error=poster.last_error,
        )


def measure_progress(
    rollouts: Sequence[Rollout], step: int, seconds: float, took: float, level: int, poster: Poster
) -> Progress:
    """Figures of training step `step`, `seconds` into the run, which `took` that many seconds."""
    answers = sum(len(rollout.rewards) for rollout in rollouts)
    tokens = sum(int(rollout.mask.sum()) for rollout in rollouts)
    return Progress(
        step=step,
        seconds=seconds,
        level=level,
        reward=sum(float(rollout.rewards.sum()) for rollout in rollouts) / answers,
        solved=sum(int(rollout.solved.sum()) for rollout in rollouts) / answers,
        length=tokens / answers,
        rate=tokens / took,
        mismatch_k3=poster.latest.get("mismatch"),
        staleness_k3=poster.latest.get("staleness"),
        failed=poster.failed,
        last_error=poster.last_error,
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
